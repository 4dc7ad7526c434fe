//! Disks that obento writes in other formats: qemu-img, simg2img and the programs that unpack streams find the bytes of
//! the disk, and so does obento.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use obento_block::{BlockDevice, MemDevice};
use obento_host::FileDevice;
use obento_host::container::{detect_on, open};
use obento_host::convert::{
    AfterCopy, ConvertError, Hash, Identity, Output, Source, Stream, Version, compare, convert, writer,
};
use obento_testkit::mutants::Random;
use obento_testkit::oracle::{Oracle, call, program, require};

/// The outputs with the suffix of the file, and the name of the format for qemu-img, where it reads it.
const OUTPUTS: [(Output, &str, Option<&str>); 11] = [
    (Output::Raw, "raw", Some("raw")),
    (Output::Qcow2 { version: Version::V2, is_compressed: false }, "2.qcow2", Some("qcow2")),
    (Output::Qcow2 { version: Version::V3, is_compressed: false }, "3.qcow2", Some("qcow2")),
    (Output::Qcow2 { version: Version::V3, is_compressed: true }, "c.qcow2", Some("qcow2")),
    (Output::Vhd, "vhd", Some("vpc")),
    (Output::Vmdk, "vmdk", Some("vmdk")),
    (Output::Vdi, "vdi", Some("vdi")),
    (Output::AndroidSparse, "simg", None),
    (Output::Packed(Stream::Gzip), "gz", None),
    (Output::Packed(Stream::Xz), "xz", None),
    (Output::Packed(Stream::Zstd), "zst", None),
];
const IDENTITY: Identity = Identity { id: [7; 16], time: 1_000_000_000 };

/// Returns a disk of whole sectors: zeros, patterns, data that can be compressed and data that cannot, of any length.
fn disk(random: &mut Random) -> Vec<u8> {
    let len = usize::try_from(random.below(12 << 11)).unwrap() * 512;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let most = 1 << random.below(23);
        let run = usize::try_from(1 + random.below(most)).unwrap().min(len - bytes.len());
        let word = random.below(1 << 32).to_le_bytes();
        match random.below(4) {
            0 => bytes.resize(bytes.len() + run, 0),
            1 => bytes.extend(word.iter().take(4).cycle().take(run)),
            2 => bytes.extend((0..run).map(|at| word[at / 700 % 4])),
            _ => bytes.extend((0..run).map(|_| random.below(256).to_le_bytes()[0])),
        }
    }
    bytes
}

/// Returns the raw disk that another program reads from `path`.
fn judged(path: &Path, output: Output, qemu: Option<&str>) -> Vec<u8> {
    let raw = PathBuf::from(format!("{}.out", path.display()));
    let unpack = |name: &str| {
        program(name).arg("-dc").stdin(Stdio::from(File::open(path).unwrap())).output().unwrap().stdout
    };
    match (output, qemu) {
        (_, Some(format)) => {
            if format == "qcow2" || format == "vdi" {
                call("qemu-img", [Path::new("check"), Path::new("-q"), path]).unwrap();
            }
            let args = ["convert", "-f", format, "-O", "raw"].map(Path::new);
            call("qemu-img", args.into_iter().chain([path, &*raw])).unwrap();
            fs::read(&raw).unwrap()
        }
        (Output::Packed(Stream::Gzip), _) => unpack("gzip"),
        (Output::Packed(Stream::Xz), _) => unpack("xz"),
        (Output::Packed(Stream::Zstd), _) => unpack("zstd"),
        _ => {
            call("simg2img", [path, &raw]).unwrap();
            fs::read(&raw).unwrap()
        }
    }
}

/// Returns whether `longer` is `bytes` with zeros after it.
fn is_padded(bytes: &[u8], longer: &[u8]) -> bool {
    longer.len() >= bytes.len()
        && longer[..bytes.len()] == *bytes
        && longer[bytes.len()..].iter().all(|&byte| byte == 0)
}

#[test]
fn other_programs_find_the_bytes_of_the_disk_in_every_format() {
    if !require(&["qemu-img", "simg2img", "zstd"].map(Oracle::Program)) {
        return;
    }
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let bytes = if seed == 0 { Vec::new() } else { disk(&mut Random::new(seed)) };
        let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(bytes.clone()));
        for (output, suffix, qemu) in OUTPUTS {
            let path = folder.path().join(format!("disk.{suffix}"));
            let what = format!("seed {seed}, {} bytes, {suffix}", bytes.len());
            let file = File::create_new(&path).unwrap();
            let format = writer(output, disk.len(), IDENTITY).unwrap();
            let mut done = 0;
            let mut watch = |now| {
                done = now;
                ControlFlow::Continue(())
            };
            let mut hashed = Vec::new();
            let hash: Box<Hash<'_>> = Box::new(|part| hashed.extend_from_slice(part));
            let len = convert(kept(&disk), &file, &path, format, Some(hash), &mut watch).unwrap();
            assert_eq!(len, fs::metadata(&path).unwrap().len(), "{what}");
            assert!(hashed == bytes, "{what}: the hash gets other bytes");
            assert!(is_padded(&bytes, &judged(&path, output, qemu)), "{what}: the bytes differ");
            let own: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&path).unwrap());
            if let Some(found) = detect_on(&*own).unwrap() {
                let own = open(found, own, &path).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(compare(&disk, &own, &mut |_| ControlFlow::Continue(())).unwrap(), "{what}");
            }
        }
    }
}

/// The whole disk, which stays as it is.
fn kept(disk: &Arc<dyn BlockDevice>) -> Source<'_> {
    Source { disk, after: AfterCopy::Keep, limit: None }
}

#[test]
fn a_disk_with_more_data_than_the_limit_is_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; 8 << 20];
    bytes[2 << 20..4 << 20].fill(7);
    let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(bytes));
    for (output, suffix, _) in OUTPUTS {
        let converted = |limit: u64| {
            let path = folder.path().join(suffix);
            let file = File::create(&path).unwrap();
            let format = writer(output, disk.len(), IDENTITY).unwrap();
            let source = Source { limit: Some(limit), ..kept(&disk) };
            convert(source, &file, &path, format, None, &mut |_| ControlFlow::Continue(()))
        };
        // Android sparse images store this pattern once.
        if suffix != "simg" {
            let refused = converted((2 << 20) - 1).unwrap_err();
            assert!(matches!(refused, ConvertError::Unpack(_)), "{suffix}: {refused}");
        }
        // The zeros are read.
        converted((2 << 20) + (8 << 20) / 64).unwrap_or_else(|error| panic!("{suffix}: {error}"));
    }
}

#[test]
fn zeros_and_patterns_that_are_read_or_compressed_count_towards_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    for (output, suffix, _) in OUTPUTS {
        for byte in [0, 7] {
            if byte != 0 && suffix != "simg" {
                continue;
            }
            let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(vec![byte; 8 << 20]));
            let converted = |limit: u64| {
                let path = folder.path().join(suffix);
                let file = File::create(&path).unwrap();
                let format = writer(output, disk.len(), IDENTITY).unwrap();
                let source = Source { limit: Some(limit), ..kept(&disk) };
                convert(source, &file, &path, format, None, &mut |_| ControlFlow::Continue(()))
            };
            let refused = converted((8 << 20) / 64 - 1).unwrap_err();
            assert!(matches!(refused, ConvertError::Unpack(_)), "{suffix}: {refused}");
            converted((8 << 20) / 64).unwrap_or_else(|error| panic!("{suffix}: {error}"));
        }
    }
}

#[test]
fn the_same_disk_makes_the_same_bytes_in_every_format() {
    let disk: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(disk(&mut Random::new(5))));
    let folder = tempfile::tempdir().unwrap();
    for (output, suffix, _) in OUTPUTS {
        let path = folder.path().join(suffix);
        let made = |_| {
            let file = File::create(&path).unwrap();
            let format = writer(output, disk.len(), IDENTITY).unwrap();
            convert(kept(&disk), &file, &path, format, None, &mut |_| ControlFlow::Continue(())).unwrap();
            fs::read(&path).unwrap()
        };
        let [one, other] = [0, 1].map(made);
        assert!(one == other, "{suffix}");
    }
    let shorter: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(vec![0; 512]));
    assert!(!compare(&disk, &shorter, &mut |_| ControlFlow::Continue(())).unwrap());
}

#[test]
fn a_source_that_is_discarded_takes_no_space_beside_the_new_image() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes = vec![9; 8 << 20];
    fs::write(&from, &bytes).unwrap();
    let file = File::options().read(true).write(true).open(&from).unwrap();
    let disk: Arc<dyn BlockDevice> = Arc::new(FileDevice::from_file(file, &from).unwrap());
    let new = File::create_new(&to).unwrap();
    let format = writer(Output::Vhd, disk.len(), IDENTITY).unwrap();
    convert(Source { after: AfterCopy::Discard, ..kept(&disk) }, &new, &to, format, None, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(is_padded(&bytes, &fs::read(&to).unwrap()[..8 << 20]));
    assert_eq!(fs::metadata(&from).unwrap().blocks(), 0);
}
