//! The source of random numbers for UUIDs, hash seeds and generations.

/// A source of unpredictable, non-repeating bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// Returns a new UUID: version 4 of RFC 9562.
    fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        self.fill(&mut uuid);
        let [.., version, _, variant, _, _, _, _, _, _, _] = &mut uuid;
        *version = *version & 0x0f | 0x40;
        *variant = *variant & 0x3f | 0x80;
        uuid
    }
}

/// A source that returns the same bytes in every call, derived from a seed, for reproducible images and
/// deterministic tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FixedRandom(pub u64);

impl Random for FixedRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // The constants are those of SplitMix64.
        let mut state = self.0;
        for chunk in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let word = (mixed ^ mixed >> 31).to_le_bytes();
            chunk.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
        }
    }
}

/// The random numbers of the operating system.
#[cfg(feature = "std")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemRandom;

#[cfg(feature = "std")]
impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        use std::io::Read as _;
        let device = std::fs::File::open("/dev/urandom");
        if device.and_then(|mut device| device.read_exact(bytes)).is_err() {
            // Without the device, use the keys of hash maps, which the system provides as well.
            for chunk in bytes.chunks_mut(8) {
                use std::hash::{BuildHasher as _, Hasher as _};
                let word = std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
                chunk.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_that_it_is_random_and_another_seed_gives_another() {
        let uuid = FixedRandom(7).uuid();
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        assert_eq!(uuid, FixedRandom(7).uuid());
        assert_ne!(uuid, FixedRandom(8).uuid());
        #[cfg(feature = "std")]
        assert_ne!(SystemRandom.uuid(), SystemRandom.uuid());
    }
}
