//! The types that claim a device. A type *claims* a device if its signature is on the device. This module finds all
//! such types, and decides which of them count.
//!
//! [`precedence`] is the table for several signatures on the same bytes. [`super::choose`] also considers the
//! partition table.

mod precedence;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::{Driver, Evidence, Probe};

use super::signature::{self, DataDescription};
use crate::Registry;
use precedence::{Class, TINY, is_disc, rank};

/// A type whose signature is on a device.
#[derive(Clone)]
pub struct Claim {
    /// The name of the type.
    pub name: &'static str,
    /// The driver and the result of its probe, or a description of a type without a driver.
    pub by: ClaimSource,
}

/// The source of a claim.
#[derive(Clone)]
pub enum ClaimSource {
    /// A driver recognises the type.
    Driver(Arc<dyn Driver>, Probe),
    /// The signature belongs to a type without a driver.
    Signature(DataDescription),
}

/// The contents of a device.
#[derive(Clone)]
pub enum Verdict {
    /// A volume that a driver recognises.
    Volume(Arc<dyn Driver>, Probe),
    /// A type without a driver.
    Unsupported(DataDescription),
    /// Data that does not claim the device.
    Other(DataDescription),
    /// Several types, in the order of the table.
    Ambiguous(Vec<Claim>),
}

/// The known contents of ranges of an image.
#[derive(Default)]
pub struct Verdicts(Mutex<Vec<(Range<u64>, Verdict)>>);

impl Verdicts {
    /// Returns the known contents of `range`, or those that `judge` determines. Fails with the errors of `judge`.
    pub fn of(&self, range: &Range<u64>, judge: impl FnOnce() -> Result<Verdict>) -> Result<Verdict> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, verdict)) = known().iter().find(|(known, _)| known == range) {
            return Ok(verdict.clone());
        }
        let verdict = judge()?;
        known().push((range.clone(), verdict.clone()));
        Ok(verdict)
    }

    /// Returns the known contents, and forgets them.
    pub fn take(&self) -> Self {
        let known = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Self(Mutex::new(known))
    }
}

/// Determines the contents of `device`. Fails with the errors of the device.
pub fn judge(registry: &Registry, device: &dyn BlockDevice) -> Result<Verdict> {
    let (mut claims, mut traces) = (Vec::new(), Vec::new());
    for driver in registry.drivers() {
        let Some(probe) = driver.probe(device)? else { continue };
        let name = driver.names().first().copied().unwrap_or_default();
        let list = if probe.evidence == Evidence::Signature { &mut claims } else { &mut traces };
        // If two drivers support one type, the one that was added later opens its volumes.
        if !list.iter().any(|claim: &Claim| claim.name == name) {
            list.push(Claim { name, by: ClaimSource::Driver(driver.clone(), probe) });
        }
    }
    let has_driver = |name: &str| registry.drivers().iter().any(|driver| driver.names().contains(&name));
    let signatures = signature::found(device)?.into_iter().filter(|(name, _)| !has_driver(name));
    claims.extend(signatures.map(|(name, looks)| Claim { name, by: ClaimSource::Signature(looks) }));
    if !claims.is_empty() {
        return Ok(decide(claims, device.len()));
    }
    if !traces.is_empty() {
        return Ok(decide(traces, device.len()));
    }
    DataDescription::of(device).map(Verdict::Other)
}

/// Decides which of `claims`, at least one, counts on a device of `len` bytes.
fn decide(mut claims: Vec<Claim>, len: u64) -> Verdict {
    let class = |claim: &Claim| rank(claim.name).1;
    claims.sort_by_key(|claim| rank(claim.name).0);
    let is_tiny = len <= TINY;
    if is_tiny && claims.iter().any(|claim| class(claim) != Class::Container) {
        claims.retain(|claim| class(claim) != Class::Container);
    }
    if claims.iter().any(|claim| class(claim) != Class::Last) {
        claims.retain(|claim| class(claim) != Class::Last);
    }
    let is_shared = claims.iter().all(|claim| class(claim) == Class::Shared);
    let first_counts = is_tiny || is_shared || claims.len() == 1;
    match claims.first() {
        Some(first) if first_counts || class(first) == Class::Container => first.clone().into(),
        _ => Verdict::Ambiguous(claims),
    }
}

impl From<Claim> for Verdict {
    fn from(claim: Claim) -> Self {
        match claim.by {
            ClaimSource::Driver(driver, probe) => Self::Volume(driver, probe),
            ClaimSource::Signature(looks) => Self::Unsupported(looks),
        }
    }
}

impl Claim {
    /// Returns the type as a message names it.
    pub fn shown(&self) -> &'static str {
        match &self.by {
            ClaimSource::Driver(_, probe) => probe.fs_type,
            ClaimSource::Signature(looks) => looks.name,
        }
    }
}

impl Verdict {
    /// Returns whether a signature claims the device.
    pub fn is_claim(&self) -> bool {
        match self {
            Self::Volume(_, probe) => probe.evidence == Evidence::Signature,
            Self::Unsupported(_) | Self::Ambiguous(_) => true,
            Self::Other(_) => false,
        }
    }

    /// Returns whether this is a volume of an optical disc. On a hybrid ISO, such a volume shares the device with a
    /// partition table.
    pub fn is_disc(&self) -> bool {
        match self {
            Self::Volume(driver, _) => driver.names().first().is_some_and(|name| is_disc(name)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_a_row_in_the_table_of_precedence() {
        let registry = Registry::default();
        let drivers = registry.drivers().iter().filter_map(|driver| driver.names().first().copied());
        for name in drivers.chain(signature::names()) {
            assert!(rank(name).0 > 0, "{name}");
        }
        let mut seen = std::collections::BTreeSet::new();
        assert!(precedence::names().all(|name| seen.insert(name)), "a type has two rows");
    }
}
