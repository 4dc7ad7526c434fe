//! The name of a state.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Error};

/// Which state of a recording: `417:9:23` is the 23rd of those drawn by seed 9 of the window that ends at event 417.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateName {
    /// The event at which the window ends: its flush.
    pub event: usize,
    /// What the states of the window were drawn by.
    pub seed: u64,
    /// Its number among them.
    pub number: usize,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.event, self.seed, self.number)
    }
}

impl FromStr for StateName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split(':').collect();
        let [event, seed, number] = parts[..] else {
            anyhow::bail!("{text:?} is not EVENT:SEED:NUMBER");
        };
        let name = || -> Result<Self, std::num::ParseIntError> {
            Ok(Self { event: event.parse()?, seed: seed.parse()?, number: number.parse()? })
        };
        name().with_context(|| format!("{text:?} is not EVENT:SEED:NUMBER"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_it_prints() {
        let name = StateName { event: 417, seed: 9, number: 23 };
        assert_eq!(name.to_string().parse::<StateName>().unwrap(), name);
        assert!("417:9".parse::<StateName>().is_err());
    }
}
