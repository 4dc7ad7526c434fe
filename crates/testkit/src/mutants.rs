//! Random mutants: small images with changed bytes at positions that depend on a seed, where the format has its
//! structures. The corpus of other projects contains old bugs; mutants find new ones in every run.

use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

use crate::oracle::{program, run};

/// A small generator with a printed seed (SplitMix64, Steele et al. 2014), with the same mutants on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }
}

/// Decompresses a committed image into `folder`.
pub fn unpack(packed: &Path, folder: &Path) -> Result<PathBuf> {
    let image = folder.join(packed.file_stem().unwrap_or(packed.as_os_str()));
    run(program("zstd").args(["-q", "-d", "-f"]).arg(packed).arg("-o").arg(&image))?;
    Ok(image)
}

/// Changes 1 to 16 positions of `image`: bits, bytes, numbers at their limits, sectors exchanged or zeroed. Only bytes
/// that are not zero are changed, because the rest of an image is free space.
pub fn mutate(image: &mut [u8], random: &mut Random) {
    let used: Vec<usize> = image
        .chunks(512)
        .enumerate()
        .filter(|(_, chunk)| chunk.iter().any(|&b| b != 0))
        .map(|(at, _)| at)
        .collect();
    if used.is_empty() {
        return;
    }
    let sector = |random: &mut Random| used[random.below(used.len() as u64) as usize] * 512;
    for _ in 0..=random.below(16) {
        let at = sector(random);
        let inside = at + random.below(512) as usize;
        match random.below(6) {
            0 => image[inside] ^= 1 << random.below(8),
            1 => image[inside] = random.number() as u8,
            2 => put(image, inside & !1, &[[0; 2], [0xff; 2], [0, 0x80]][random.below(3) as usize]),
            3 => put(
                image,
                inside & !3,
                &[[0; 4], [0xff; 4], [0, 0, 0, 0x80], [1, 0, 0, 0]][random.below(4) as usize],
            ),
            4 => {
                let from = sector(random);
                let bytes: Vec<u8> = image[from..(from + 512).min(image.len())].to_vec();
                put(image, at, &bytes);
            }
            _ => put(image, at, &[0; 512]),
        }
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    let end = (at + bytes.len()).min(image.len());
    if let Some(target) = image.get_mut(at..end) {
        target.copy_from_slice(&bytes[..target.len()]);
    }
}

/// Writes mutant `seed` of `original` to `path`.
pub fn write(original: &[u8], seed: u64, path: &Path) -> Result<()> {
    let mut image = original.to_vec();
    mutate(&mut image, &mut Random::new(seed));
    Ok(fs::write(path, image)?)
}
