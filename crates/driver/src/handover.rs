//! The state of an open volume as bytes, for a driver in another program or kernel module.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::Ino;
use obento_base::fields::{Fields, Need, Parsed, StateError, Version};

use crate::HandoverState;

/// The state of an open volume. The driver that has the volume open encodes the state, and the next driver of
/// the volume decodes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeState {
    /// The name that the host uses for the driver. The host rejects a state with the name of another driver.
    pub driver: String,
    /// A number that identifies the volume.
    pub volume: u64,
    /// The inodes in use and the state of the driver.
    pub handover: HandoverState,
    /// The open files of a recorded history, as
    /// [`OpenFile::to_numbers`](crate::history::OpenFile::to_numbers) encodes each of them. Empty if the volume records
    /// no history.
    pub records: Vec<[u64; 15]>,
}

impl VolumeState {
    /// `obVS`.
    const MAGIC: u32 = u32::from_le_bytes(*b"obVS");
    /// The version of the encoding. [`decode`](Self::decode) rejects a state with another major version, and a state
    /// with an unknown critical field. `decode` ignores unknown optional fields.
    pub const VERSION: Version = (1, 0);

    const DRIVER: u16 = 1;
    const VOLUME: u16 = 2;
    const INODES: u16 = 3;
    const STATE: u16 = 4;
    const RECORDS: u16 = 5;

    /// Encodes the state, with its version and a checksum.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: memory is exhausted.
    pub fn encode(&self) -> obento_base::Result<Vec<u8>> {
        let handover = &self.handover;
        let (inodes, records) = (handover.inodes.len(), self.records.len());
        let lists = inodes
            .saturating_mul(size_of::<u64>())
            .saturating_add(records.saturating_mul(size_of::<[u64; 15]>()));
        let rest = self.driver.len().saturating_add(size_of::<u64>()).saturating_add(handover.state.len());
        Ok(Fields::with_room(5, lists.saturating_add(rest))?
            .with(Self::DRIVER, Need::Critical, self.driver.as_bytes())
            .with_number(Self::VOLUME, self.volume)
            .with_records(Self::INODES, self.handover.inodes.iter().map(|ino| [ino.0]))
            .with(Self::STATE, Need::Critical, &self.handover.state)
            .with_records(Self::RECORDS, self.records.iter().copied())
            .seal(Self::MAGIC, Self::VERSION))
    }

    /// Decodes a state.
    ///
    /// # Errors
    ///
    /// - `Magic`: the bytes are not a state.
    /// - `Version`: the state has another major version.
    /// - `Truncated`: the bytes end too early, or their length differs from the length in the head.
    /// - `Checksum`: the checksum is wrong.
    /// - `Missing`: a required field is absent.
    /// - `Unknown`: a critical field is not supported.
    /// - `NoMemory`: memory is exhausted.
    /// - `Invalid`: a field has an invalid value, or the inodes are not sorted.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut fields = Parsed::unseal(Self::MAGIC, Self::VERSION, bytes)?;
        let numbers = fields.records(Self::INODES)?;
        let mut inodes = Vec::new();
        inodes.try_reserve_exact(numbers.len()).map_err(|_| StateError::NoMemory)?;
        inodes.extend(numbers.into_iter().map(|[ino]| Ino(ino)));
        if !inodes.is_sorted() {
            return Err(StateError::Invalid(Self::INODES));
        }
        let state = Self {
            driver: fields.text(Self::DRIVER)?,
            volume: fields.number(Self::VOLUME)?,
            handover: HandoverState { inodes, state: fields.bytes(Self::STATE)?.to_vec() },
            records: fields.records(Self::RECORDS)?,
        };
        fields.finish()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> VolumeState {
        VolumeState {
            driver: "ext4".into(),
            volume: 77,
            handover: HandoverState { inodes: [Ino(2), Ino(12)].into(), state: [1, 2, 3].into() },
            records: [[5; 15]].into(),
        }
    }

    #[test]
    fn a_state_that_was_encoded_is_decoded() {
        for state in [example(), VolumeState::default()] {
            assert_eq!(VolumeState::decode(&state.encode().unwrap()), Ok(state));
        }
    }

    #[test]
    fn a_state_that_was_cut_or_changed_is_refused() {
        let bytes = example().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(VolumeState::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The minor version is information only, but the checksum covers it.
            assert!(VolumeState::decode(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_major_version_is_refused_and_a_later_minor_version_is_not() {
        let fields = || {
            Fields::default()
                .with(VolumeState::DRIVER, Need::Critical, b"ext4")
                .with_number(VolumeState::VOLUME, 0)
                .with_records::<1>(VolumeState::INODES, [].into_iter())
                .with(VolumeState::STATE, Need::Critical, &[])
                .with_records::<15>(VolumeState::RECORDS, [].into_iter())
        };
        let seal = |fields: Fields, version| fields.seal(VolumeState::MAGIC, version);
        assert_eq!(VolumeState::decode(&seal(fields(), (2, 3))), Err(StateError::Version(2, 3, 1)));
        assert!(VolumeState::decode(&seal(fields().with(99, Need::Optional, b"x"), (1, 9))).is_ok());
        let critical = seal(fields().with(99, Need::Critical, b"x"), (1, 9));
        assert_eq!(VolumeState::decode(&critical), Err(StateError::Unknown(99)));
    }

    #[test]
    fn inodes_must_be_sorted() {
        let mut state = example();
        state.handover.inodes.reverse();
        assert_eq!(
            VolumeState::decode(&state.encode().unwrap()),
            Err(StateError::Invalid(VolumeState::INODES))
        );
    }
}
