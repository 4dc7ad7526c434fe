//! Names of states.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Error};

/// The number of states of a window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Drawn {
    /// The largest window, in writes, for which every subset is built.
    pub every_subset: u32,
    /// The number of random subsets of a larger window.
    pub samples: u32,
    /// The number of states with a torn write in each window.
    pub torn: u32,
}

/// The name of a state of a recording. `417:9:23:5-24-12` is state 23 of the window that ends at event 417, with seed
/// 9. Its numbers mean every subset of 5 writes, 24 samples and 12 torn states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateName {
    /// The event that ends the window: its flush.
    pub event: usize,
    /// The seed of the states.
    pub seed: u64,
    /// The number of the state.
    pub number: usize,
    /// The number of states.
    pub drawn: Drawn,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Drawn { every_subset, samples, torn } = self.drawn;
        write!(f, "{}:{}:{}:{every_subset}-{samples}-{torn}", self.event, self.seed, self.number)
    }
}

impl FromStr for StateName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split([':', '-']).collect();
        let [event, seed, number, subsets, samples, torn] = parts[..] else {
            anyhow::bail!("{text:?} is not EVENT:SEED:NUMBER:SUBSETS-SAMPLES-TORN");
        };
        let name = || -> Result<Self, std::num::ParseIntError> {
            let (every_subset, samples, torn) = (subsets.parse()?, samples.parse()?, torn.parse()?);
            let drawn = Drawn { every_subset, samples, torn };
            Ok(Self { event: event.parse()?, seed: seed.parse()?, number: number.parse()?, drawn })
        };
        name().with_context(|| format!("{text:?} is not EVENT:SEED:NUMBER:SUBSETS-SAMPLES-TORN"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_name_parses_to_the_same_value() {
        let drawn = Drawn { every_subset: 5, samples: 24, torn: 12 };
        let name = StateName { event: 417, seed: 9, number: 23, drawn };
        assert_eq!(name.to_string(), "417:9:23:5-24-12");
        assert_eq!(name.to_string().parse::<StateName>().unwrap(), name);
        assert!("417:9:23".parse::<StateName>().is_err());
    }
}
