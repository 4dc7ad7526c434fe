//! Targets for the sources of volumes: archives, manifests, layouts of container images.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use obento::Registry;
use obento::build::{BuildFailure, BuildReport, BuildSettings, BuildSource, Input, build};
use obento::copy::Quiet;
use obento_host::tar::{TarError, TarReader};
use sha2::{Digest as _, Sha256};

use crate::seeds::LAYER;

const BLOCK: usize = 512;

/// Reads all members of an archive and their data, after correcting the checksums of the headers.
pub fn tar(data: &[u8]) {
    let bytes = with_checksums(data);
    let (mut reader, mut buf, mut members) = (TarReader::new(&bytes[..]), [0; 700], 0);
    loop {
        match reader.next_member() {
            Ok(None) | Err(TarError::Input(_) | TarError::Truncated { .. }) => break,
            Err(TarError::Damaged { .. } | TarError::Unfit { .. }) => {}
            Ok(Some(member)) => {
                let mut end = 0;
                for run in member.map.iter().flatten() {
                    assert!(end <= run.start && run.start <= run.end && run.end <= member.size, "{member:?}");
                    end = run.end;
                }
                while reader.read_data(&mut buf).is_ok_and(|len| len > 0) {}
            }
        }
        // Each member takes at least one block.
        members += 1;
        assert!(members <= bytes.len() / BLOCK + 1, "{members} members");
    }
    let _ = (reader.has_end(), reader.finish());
}

/// Corrects the checksums of headers: the sum of all bytes of the header, with spaces in place of the checksum. The
/// first block and all blocks that contain `ustar` are taken for headers.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    for (number, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        if number > 0 && !block[257..].starts_with(b"ustar") {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// Builds a small volume from one source, whose kind the first byte chooses.
pub fn build_source(data: &[u8]) {
    if let Some((&kind, data)) = data.split_first() {
        let _ = built(kind, data);
    }
}

fn built(kind: u8, data: &[u8]) -> Result<BuildReport, BuildFailure> {
    let folder = tempfile::tempdir_in(scratch()).expect("room for a folder");
    let source = lay_out(kind, data, folder.path()).expect("room for a few files");
    let settings = BuildSettings {
        size: Some(2 << 20),
        block_size: Some(1024),
        epoch: Some(0),
        threads: 1,
        ..BuildSettings::new("ext2")
    };
    let out = folder.path().join("image");
    build(&out, &[source], &settings, &Registry::default(), &mut Quiet::default())
}

/// Returns a folder in memory, if the machine has one.
fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Writes a source into `folder`.
fn lay_out(kind: u8, data: &[u8], folder: &Path) -> io::Result<BuildSource> {
    let file = folder.join("source");
    // A file that a manifest may name.
    fs::write(folder.join("file"), b"some bytes")?;
    match kind % 6 {
        0 => fs::write(&file, data).map(|()| BuildSource::Mtree(file)),
        1 => fs::write(&file, data).map(|()| BuildSource::Dump(file)),
        2 => fs::write(&file, with_checksums(data)).map(|()| BuildSource::Archive(Input::File(file))),
        3 => fs::write(&file, with_checksums(data)).map(|()| BuildSource::Layer(Input::File(file))),
        4 => layout(&file, data, &[LAYER]),
        _ => {
            let digest = hex(data);
            let index = format!(
                "{{\"schemaVersion\":2,\"manifests\":[{{\"digest\":\"sha256:{digest}\",\"size\":{}}}]}}",
                data.len()
            );
            layout(&file, index.as_bytes(), &[LAYER, data])
        }
    }
}

/// Writes an image layout with this index and these blobs.
fn layout(path: &Path, index: &[u8], blobs: &[&[u8]]) -> io::Result<BuildSource> {
    let folder = path.join("blobs/sha256");
    fs::create_dir_all(&folder)?;
    fs::write(path.join("oci-layout"), b"{\"imageLayoutVersion\":\"1.0.0\"}")?;
    fs::write(path.join("index.json"), index)?;
    for blob in blobs {
        fs::write(folder.join(hex(blob)), blob)?;
    }
    if path.is_dir() { Ok(BuildSource::OciLayout(path.into())) } else { Err(ErrorKind::NotFound.into()) }
}

/// Returns the digest of a blob, which is its name.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use obento::build::SourceProblem;

    use super::*;
    use crate::seeds;

    #[test]
    fn correct_checksums_are_unchanged() {
        for archive in seeds::archives() {
            assert!(with_checksums(&archive) == archive);
        }
    }

    #[test]
    fn a_volume_is_built_from_every_seed_except_those_that_name_missing_files() {
        // An index may name no manifest, and an access control list may name users that the tree does not have.
        let is_unknown = |problem: &SourceProblem| problem.why.to_string().contains("the image has no ");
        let has_lists = |seed: &[u8]| seed.windows(10).any(|bytes| bytes == b"SCHILY.acl");
        for seed in seeds::sources() {
            match (seed[0], built(seed[0], &seed[1..])) {
                (4, Err(_)) => {}
                (_, Err(BuildFailure::Sources(problems)))
                    if has_lists(&seed) && problems.iter().all(is_unknown) => {}
                (_, report) => assert!(report.unwrap().files > 0),
            }
        }
    }
}
