//! Files that Windows compresses for itself (WOF). No program here writes them, but wimlib writes the same chunks into
//! archives: these are put into the stream that the format wants.

mod common;

use std::fs;
use std::path::Path;

use common::{Mount, open_image, pattern, shape_of};
use obento_testkit::changes::{read, resolve};
use obento_testkit::oracle::{Oracle, call, program, run};
use obento_testkit::require;

/// Compression of wimlib, bytes of a chunk, and the number of the algorithm in the reparse point.
const METHODS: [(&str, u32, u32); 4] =
    [("XPRESS", 4096, 0), ("LZX", 32_768, 1), ("XPRESS", 8192, 2), ("XPRESS", 16_384, 3)];

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Returns the chunk table and the chunks that wimlib makes of `data`.
fn resource(folder: &Path, data: &[u8], method: &str, chunk: u32) -> Vec<u8> {
    let source = folder.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), data).unwrap();
    let archive = folder.join("archive.wim");
    let _ = fs::remove_file(&archive);
    let options = [format!("--compress={method}"), format!("--chunk-size={chunk}"), "--no-acls".into()];
    run(program("wimlib-imagex").arg("capture").arg(&source).arg(&archive).args(options)).unwrap();
    let bytes = fs::read(archive).unwrap();
    // The table of resources: length, flags, offset and original size of each.
    let (len, table) = (number(&bytes, 48, 7) as usize, number(&bytes, 56, 8) as usize);
    let entry =
        bytes[table..table + len].chunks_exact(50).find(|entry| number(entry, 16, 8) == data.len() as u64);
    let entry = entry.expect("the file is in the archive");
    assert_eq!(entry[7] & 4, 4, "it is compressed");
    let (len, at) = (number(entry, 0, 7) as usize, number(entry, 8, 8) as usize);
    bytes[at..at + len].to_vec()
}

/// Text, noise, runs, and the machine code of a program, whose calls LZX translates.
fn payload() -> Vec<u8> {
    let code = fs::read("/bin/sh").unwrap();
    [pattern(150_000), code, vec![7; 100_000], pattern(3)].concat()
}

#[test]
fn files_of_each_method_read_as_they_were() {
    if !common::oracles() || !require(&[Oracle::Program("wimlib-imagex")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape_of("4k").make(folder.path());
    let data = payload();
    let mount = Mount::new(&image, folder.path(), "streams_interface=windows,");
    for (method, chunk, algorithm) in METHODS {
        let file = mount.0.join(format!("{method}-{chunk}"));
        let stream = mount.0.join(format!("{method}-{chunk}:WofCompressedData"));
        fs::File::create(&file).and_then(|file| file.set_len(data.len() as u64)).unwrap();
        fs::write(stream, resource(folder.path(), &data, method, chunk)).unwrap();
        let point = [0x8000_0017, 16, 1, 2, 1, algorithm];
        let hex: String = point
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        call(
            "setfattr",
            ["-h", "-n", "system.ntfs_reparse_data", "-v", &format!("0x{hex}"), file.to_str().unwrap()],
        )
        .unwrap();
    }
    drop(mount);
    let volume = open_image(&image);
    for (method, chunk, _) in METHODS {
        let ino = resolve(&*volume, &format!("/{method}-{chunk}")).unwrap();
        let attr = volume.getattr(ino).unwrap();
        assert_eq!(attr.size, data.len() as u64);
        assert!(attr.blocks * 512 < attr.size, "{method}: it takes less space");
        let found = read(&*volume, ino, attr.size).unwrap();
        let at = found.iter().zip(&data).position(|(found, expected)| found != expected);
        assert!(found == data, "{method} in chunks of {chunk} differs at {at:?}");
        let mut names = 0;
        volume.xattrs().unwrap().list_xattrs(ino, &mut |_| names += 1).unwrap();
        assert_eq!(names, 0, "{method}: the chunks are not a stream of the user");
    }
}
