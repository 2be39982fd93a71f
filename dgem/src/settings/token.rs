//! The bearer token: where it comes from, and a type that never prints it.

use std::fmt;
use std::path::Path;

use crate::capped;
use crate::error::Error;

/// A token without the word `Bearer`. Neither `Debug` nor an error shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn from_file(path: &Path) -> Result<Self, Error> {
        let text = capped::read_file(path, capped::TOKEN_BYTES)
            .and_then(capped::text)
            .map_err(|cause| Error::TokenFile { path: path.to_owned(), cause })?;
        Self::parse(&text, &path.display().to_string())
    }

    pub(crate) fn parse(text: &str, source: &str) -> Result<Self, Error> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case("bearer")) {
            words.remove(0);
        }
        let token = words.join(" ");
        if token.is_empty() || token.chars().any(|c| !c.is_ascii_graphic()) {
            return Err(Error::BadToken { origin: source.to_owned() });
        }
        Ok(Self(token))
    }

    /// The bare token, for those who send it or look into it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_bearer_is_not_doubled_and_the_token_is_not_printed() {
        for text in ["abc", "Bearer abc", "bearer abc\n"] {
            let token = Token::parse(text, "test").unwrap();
            assert_eq!(token.header(), "Bearer abc");
            assert!(!format!("{token:?}").contains("abc"));
        }
        for text in ["", "  ", "a\nb", "Bearer "] {
            assert!(Token::parse(text, "test").is_err(), "{text:?}");
        }
    }
}
