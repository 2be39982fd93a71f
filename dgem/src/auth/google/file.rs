//! Files of credentials, told apart by their `type`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::exchange::no_token;
use super::key::Key;
use super::user::User;
use crate::capped;
use crate::env::{self, Environment};
use crate::error::Error;
use crate::foreign::clipped;

const DEFAULT_FILE: &str = "application_default_credentials.json";

pub(super) enum Credentials {
    Key(Box<Key>),
    User(User),
    Impersonated { account: String, delegates: Vec<String>, source: Box<Credentials> },
}

/// Where `gcloud auth application-default login` writes.
pub(super) fn default_path(environment: &Environment) -> Option<PathBuf> {
    let folder = match environment.get(env::CLOUDSDK_CONFIG) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(environment.get(env::HOME)?).join(".config/gcloud"),
    };
    Some(folder.join(DEFAULT_FILE))
}

impl Credentials {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let provider = format!("the credentials file {}", path.display());
        let refuse = |reason: String| no_token(&provider, reason, false);
        let bytes = capped::read_file(path, capped::TOKEN_BYTES)
            .map_err(|cause| refuse(format!("it cannot be read: {cause}")))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|cause| {
            refuse(format!("it is no JSON (line {}, column {})", cause.line(), cause.column()))
        })?;
        Self::parse(&value, &provider)
    }

    fn parse(value: &Value, provider: &str) -> Result<Self, Error> {
        let refuse = |reason: String| no_token(provider, reason, false);
        match value["type"].as_str() {
            Some("service_account") => Key::parse(value, provider).map(|key| Self::Key(Box::new(key))),
            Some("authorized_user") => User::parse(value, provider).map(Self::User),
            Some("impersonated_service_account") => {
                let account = value["service_account_impersonation_url"]
                    .as_str()
                    .and_then(|url| url.rsplit_once("/serviceAccounts/")?.1.split_once(':'))
                    .map(|(account, _)| account.to_owned())
                    .ok_or_else(|| {
                        refuse("its `service_account_impersonation_url` names no service account".to_owned())
                    })?;
                let source = &value["source_credentials"];
                if source["type"] == "impersonated_service_account" {
                    return Err(refuse("its source is impersonated again; use `delegates`".to_owned()));
                }
                let source = Box::new(Self::parse(source, provider)?);
                let delegates = value["delegates"].as_array().into_iter().flatten();
                let delegates = delegates.filter_map(|name| name.as_str().map(str::to_owned)).collect();
                Ok(Self::Impersonated { account, delegates, source })
            }
            Some("external_account") => Err(refuse(
                "it is of an external account, which dgem cannot use directly; \
                 log in with gcloud and name a service account with --impersonate-service-account"
                    .to_owned(),
            )),
            Some(other) => Err(refuse(format!("its type `{}` is not known", clipped(other, 40)))),
            None => Err(refuse("it has no `type`".to_owned())),
        }
    }
}
