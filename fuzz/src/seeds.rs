//! What the fuzzer starts from: the structures of the sound volumes as they are, which it then changes.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use obento_block::{BlockDevice as _, MemDevice};

use crate::places::KINDS;
use crate::volumes::{EXFAT, EXT4, FAT, XV6};

/// Structures of a kind, and changes of a volume.
const SOME: usize = 24;

/// Writes inputs for each target to a folder of its name in `corpus`.
pub fn write(corpus: &Path) -> io::Result<()> {
    for (kind, places) in KINDS {
        let places = places();
        // The first byte chooses the place.
        let step = places.len().min(256).div_ceil(SOME);
        for (choice, &(offset, len)) in places.iter().enumerate().take(256).step_by(step) {
            let mut input = vec![0; len + 1];
            EXT4.read_at(offset, &mut input[1..]).expect("the place is on the volume");
            input[0] = u8::try_from(choice).expect("below 256");
            one(corpus, kind, choice, &input)?;
        }
    }
    let volumes = [("mount_and_walk", &EXT4), ("fat", &FAT), ("exfat", &EXFAT), ("xv6", &XV6)];
    for (format, (target, volume)) in (0..).zip(volumes) {
        for (number, changes) in unchanged(volume).iter().enumerate() {
            one(corpus, target, number, changes)?;
            let plan = u8::try_from(number).unwrap_or(0);
            one(
                corpus,
                "operations",
                usize::from(format) * SOME + number,
                &[&[format, 0, 0, plan], &changes[..]].concat(),
            )?;
        }
    }
    Ok(())
}

fn one(corpus: &Path, target: &str, number: usize, input: &[u8]) -> io::Result<()> {
    let folder = corpus.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("sound-{number}")), input)
}

/// Inputs that put bytes of the volume where they are: four bytes are a place and a byte. They lie in blocks that hold
/// something, eight in each.
fn unchanged(volume: &Arc<MemDevice>) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(volume.len()).expect("a small volume")];
    volume.read_at(0, &mut bytes).expect("memory does not fail");
    let used: Vec<_> =
        (0..bytes.len()).step_by(512).filter(|&at| bytes[at..at + 512].iter().any(|&b| b != 0)).collect();
    let in_block = |&block: &usize| {
        let set = (block..block + 512).filter(|&at| bytes[at] != 0).take(8);
        set.flat_map(|at| [at as u8, (at >> 8) as u8, (at >> 16) as u8, bytes[at]]).collect()
    };
    used.iter().step_by(used.len().div_ceil(SOME)).map(in_block).collect()
}
