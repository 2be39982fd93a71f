//! Which rows this process takes when several share one input.

use crate::env::{self, Environment};
use crate::error::Error;

/// Rows with `number % count == index`, rows and shards counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub index: u64,
    pub count: u64,
}

impl Shard {
    /// The flag wins; without it the variables that Cloud Run Jobs sets for every task.
    pub fn resolve(flag: Option<&str>, environment: &Environment) -> Result<Self, Error> {
        if let Some(text) = flag {
            return Self::parse(text, "--shard");
        }
        match (environment.get(env::TASK_INDEX), environment.get(env::TASK_COUNT)) {
            (Some(index), Some(count)) => {
                Self::parse(&format!("{index}/{count}"), "CLOUD_RUN_TASK_INDEX/CLOUD_RUN_TASK_COUNT")
            }
            _ => Ok(Self { index: 0, count: 1 }),
        }
    }

    fn parse(text: &str, origin: &'static str) -> Result<Self, Error> {
        text.split_once('/')
            .and_then(|(index, count)| {
                Some(Self { index: index.trim().parse().ok()?, count: count.trim().parse().ok()? })
            })
            .filter(|shard| shard.index < shard.count)
            .ok_or_else(|| Error::BadShard { origin, value: text.to_owned() })
    }

    /// `number` counts from 0.
    pub fn takes(self, number: u64) -> bool {
        number % self.count == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_belongs_to_exactly_one_shard() {
        let shards: Vec<Shard> =
            (0..3).map(|index| Shard::parse(&format!("{index}/3"), "--shard").unwrap()).collect();
        for number in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.takes(number)).count(), 1);
        }
    }

    #[test]
    fn the_flag_wins_over_the_task_and_nonsense_is_refused() {
        let task = Environment::from_lookup(|name| match name {
            env::TASK_INDEX => Some("1".to_owned()),
            env::TASK_COUNT => Some("4".to_owned()),
            _ => None,
        });
        assert_eq!(Shard::resolve(None, &task).unwrap(), Shard { index: 1, count: 4 });
        assert_eq!(Shard::resolve(Some("0/2"), &task).unwrap(), Shard { index: 0, count: 2 });
        assert_eq!(Shard::resolve(None, &Environment::default()).unwrap(), Shard { index: 0, count: 1 });
        for bad in ["4/4", "1", "a/b", "-1/2", "0/0", ""] {
            let message = Shard::resolve(Some(bad), &task).unwrap_err().to_string();
            assert!(message.contains("--shard") && message.contains("from 0"), "{message}");
        }
    }
}
