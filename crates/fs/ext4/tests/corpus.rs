//! Damaged images: every operation ends with a result or an error.

mod common;

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Instant;

use obento_testkit::oracle::{Oracle, corpus, require};

/// Decompresses a `.gz` into a sparse file.
fn unpack(packed: &Path, to: &Path) -> io::Result<()> {
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    let mut reader = flate2::read::MultiGzDecoder::new(File::open(packed)?);
    let mut file = File::create(to)?;
    let mut chunk = vec![0; 1 << 16];
    let mut len = 0;
    loop {
        let got = reader.read(&mut chunk)?;
        if got == 0 {
            return file.set_len(len);
        }
        if chunk[..got].iter().all(|&byte| byte == 0) {
            file.seek(SeekFrom::Current(got as i64))?;
        } else {
            file.write_all(&chunk[..got])?;
        }
        len += got as u64;
    }
}

#[test]
fn every_damaged_image_is_read_to_the_end_without_panic_or_hang() {
    if !require(&[Oracle::Corpus]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut packed: Vec<_> = corpus()
        .unwrap()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "gz"))
        .collect();
    packed.sort();
    assert!(!packed.is_empty(), "the corpus holds images");
    for path in packed {
        unpack(&path, &image).unwrap();
        let start = Instant::now();
        let outcome = match common::open(&image) {
            Ok(fs) => {
                let all = common::read_everything(&fs);
                format!("{} entries, {} bytes, errors {:?}", all.entries.len(), all.bytes, all.errors)
            }
            Err(error) => format!("not opened: {error}"),
        };
        println!("{}: {:?} {outcome:.600}", path.file_name().unwrap().display(), start.elapsed());
        assert!(start.elapsed().as_secs() < 20, "{} takes too long", path.display());
    }
}
