//! The table of settings: under which name each is found in a file and in the environment, and where it may stand.
//!
//! `layers` looks them up, `commands::config` prints them.

use crate::cli::ConnectionFlags;
use crate::env;

/// The settings files that may hold a key. What names credentials, or whom to trust with them, is never taken from a file
/// that came with a project: else a foreign repository could have a token sent to a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    Any,
    /// The user's own file, or the one named with `--config`.
    User,
    None,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// In a file; with dashes and two in front, the flag.
    pub name: &'static str,
    pub variable: &'static str,
    pub files: Files,
    pub default: Option<&'static str>,
    /// Its value may be a secret and is never shown.
    pub secret: bool,
    flag: fn(&ConnectionFlags) -> Option<&String>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Key {
    /// The flag as it is typed.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    pub(super) fn typed<'a>(&self, flags: &'a ConnectionFlags) -> Option<&'a String> {
        (self.flag)(flags)
    }
}

const fn key(
    name: &'static str,
    variable: &'static str,
    files: Files,
    flag: fn(&ConnectionFlags) -> Option<&String>,
) -> Key {
    Key { name, variable, files, default: None, secret: false, flag }
}

const fn or(key: Key, default: &'static str) -> Key {
    Key { default: Some(default), ..key }
}

const fn secret(key: Key) -> Key {
    Key { secret: true, ..key }
}

pub static URL: Key = or(key("url", env::URL, Files::Any, |f| f.url.as_ref()), "http://127.0.0.1:8080/v1");
pub static MODEL: Key = key("model", env::MODEL, Files::Any, |f| f.model.as_ref());
pub static TIMEOUT: Key = or(key("timeout", env::TIMEOUT, Files::Any, |f| f.timeout.as_ref()), "120s");
pub static CONNECT_TIMEOUT: Key =
    or(key("connect_timeout", env::CONNECT_TIMEOUT, Files::Any, |f| f.connect_timeout.as_ref()), "10s");
pub static RETRIES: Key = key("retries", env::RETRIES, Files::Any, |f| f.retries.as_ref());
pub static WAIT_READY: Key = key("wait_ready", env::WAIT_READY, Files::Any, |f| f.wait_ready.as_ref());
pub static CACERT: Key = key("cacert", env::CACERT, Files::User, |f| f.cacert.as_ref());
pub static TOKEN: Key = secret(key("token", env::TOKEN, Files::None, |f| f.auth.token.as_ref()));
pub static TOKEN_FILE: Key = key("token_file", env::TOKEN_FILE, Files::User, |f| f.auth.token_file.as_ref());
pub static TOKEN_COMMAND: Key =
    secret(key("token_command", env::TOKEN_COMMAND, Files::User, |f| f.auth.token_command.as_ref()));
pub static GCP_AUTH: Key = key("gcp_auth", env::GCP_AUTH, Files::User, |f| f.auth.gcp_auth.as_ref());
pub static AUDIENCE: Key = key("audience", env::AUDIENCE, Files::User, |f| f.auth.audience.as_ref());
pub static IMPERSONATE: Key =
    key("impersonate_service_account", env::IMPERSONATE_SERVICE_ACCOUNT, Files::User, |f| {
        f.auth.impersonate_service_account.as_ref()
    });

/// All of them, in the order in which they are printed.
pub static ALL: [&Key; 13] = [
    &URL,
    &MODEL,
    &TIMEOUT,
    &CONNECT_TIMEOUT,
    &RETRIES,
    &WAIT_READY,
    &CACERT,
    &TOKEN,
    &TOKEN_FILE,
    &TOKEN_COMMAND,
    &GCP_AUTH,
    &AUDIENCE,
    &IMPERSONATE,
];
