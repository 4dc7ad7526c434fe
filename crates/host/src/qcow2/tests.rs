//! Reads images that `qemu-img` created, and compares the contents.

use std::fs;
use std::process::Command;

use obento_block::MemDevice;
use obento_testkit::oracle::{Oracle, require};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::HostFile;

/// Returns 5 MiB: data, a hole, data up to an unaligned end.
fn sample() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..1_u32 << 20).map(|n| (n >> 8 ^ n) as u8).collect();
    bytes.resize(4 << 20, 0);
    bytes.extend((0..(1_u32 << 20) - 512).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]));
    bytes
}

/// Runs `qemu-img` in `dir`. Returns false if the program does not exist.
fn qemu_img(dir: &TempDir, args: &[&str]) -> bool {
    if !require(&[Oracle::Program("qemu-img")]) {
        return false;
    }
    let output = Command::new("qemu-img").current_dir(dir.path()).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn with_raw() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("raw"), sample()).unwrap();
    dir
}

fn open(dir: &TempDir, name: &str, references: References) -> Result<Qcow2Device, HostError> {
    let path = dir.path().join(name);
    Qcow2Device::open(Arc::new(FileDevice::open(&path)?), &path, references)
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![1; to_usize(device.len())];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn images_of_all_shapes_read_as_qemu_wrote_them() {
    let shapes: [&[&str]; 11] = [
        &["-o", "compat=0.10"],
        &["-o", "compat=1.1"],
        &["-c"],
        &["-c", "-o", "cluster_size=512"],
        &["-c", "-o", "cluster_size=2M"],
        &["-o", "cluster_size=4k,refcount_bits=1"],
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "compression_type=zstd,cluster_size=512"],
        &["-c", "-o", "compression_type=zstd,cluster_size=2M"],
        &["-o", "compression_type=zstd"],
        &["-o", "lazy_refcounts=on,preallocation=metadata"],
    ];
    let dir = with_raw();
    for shape in shapes {
        let args = [&["convert", "-O", "qcow2", "raw", "image"], shape].concat();
        if !qemu_img(&dir, &args) {
            return;
        }
        let device = open(&dir, "image", References::Refuse).unwrap();
        assert!(content(&device) == sample(), "{shape:?}");
        let mut piece = [0; 4096];
        device.read_at(5 << 20 >> 1, &mut piece).unwrap();
        assert_eq!(piece, [0; 4096]);
        device.read_at(100_001, &mut piece).unwrap();
        assert_eq!(piece[..], sample()[100_001..104_097]);
        assert!(device.read_at(device.len() - 1, &mut piece).is_err() && device.is_read_only());
    }
}

#[test]
fn plain_clusters_name_their_place_in_the_file_and_others_do_not() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "raw", "image"]) {
        return;
    }
    let device = open(&dir, "image", References::Refuse).unwrap();
    let backing = device.backing(70_000..400_000).unwrap();
    let mut bytes = vec![0; to_usize(backing.len)];
    assert!(rustix::io::pread(HostFile::of(&backing).unwrap(), &mut bytes, backing.offset).is_ok());
    assert!(bytes[..] == sample()[70_000..70_000 + bytes.len()]);
    assert!(device.backing(2 << 20..3 << 20).is_none());
    qemu_img(&dir, &["convert", "-c", "-O", "qcow2", "raw", "image"]);
    assert!(open(&dir, "image", References::Refuse).unwrap().backing(0..4096).is_none());
}

#[test]
fn backing_files_are_opened_only_where_that_is_allowed() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "raw", "base"]) {
        return;
    }
    qemu_img(&dir, &["create", "-f", "qcow2", "-b", "raw", "-F", "raw", "over-raw"]);
    qemu_img(&dir, &["create", "-f", "qcow2", "-b", "base", "-F", "qcow2", "middle"]);
    qemu_img(&dir, &["create", "-f", "qcow2", "-b", "middle", "-F", "qcow2", "top", "6M"]);
    for name in ["over-raw", "top"] {
        let refused = open(&dir, name, References::Refuse).err().unwrap();
        assert!(matches!(refused, HostError::Reference { role: "backing file", .. }), "{refused}");
        let bytes = content(&open(&dir, name, References::Open).unwrap());
        let (data, rest) = bytes.split_at(sample().len());
        assert!(data == sample() && rest.iter().all(|&byte| byte == 0), "{name}");
    }
    qemu_img(&dir, &["create", "-u", "-f", "qcow2", "-b", "./loop", "-F", "qcow2", "loop", "1M"]);
    assert!(matches!(open(&dir, "loop", References::Open), Err(HostError::Damaged { .. })));
    qemu_img(&dir, &["create", "-u", "-f", "qcow2", "-b", "/etc", "-F", "raw", "odd", "1M"]);
    assert!(matches!(open(&dir, "odd", References::Open), Err(HostError::NotAnImage { .. })));
}

#[test]
fn external_data_files_are_opened_only_where_that_is_allowed() {
    let dir = with_raw();
    let args = ["convert", "-O", "qcow2", "-o", "data_file=data", "raw", "image"];
    if !qemu_img(&dir, &args) {
        return;
    }
    let refused = open(&dir, "image", References::Refuse).err().unwrap();
    assert!(matches!(refused, HostError::Reference { role: "data file", .. }), "{refused}");
    assert!(content(&open(&dir, "image", References::Open).unwrap()) == sample());
}

#[test]
fn unsupported_features_are_named() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "-o", "extended_l2=on,cluster_size=128k", "raw", "image"])
    {
        return;
    }
    let subclusters = open(&dir, "image", References::Refuse).err().unwrap().to_string();
    assert!(subclusters.contains("subclusters"), "{subclusters}");

    // The header contains the number of the method. `qemu-img` does not create LUKS here: it measures the
    // processor to choose the number of hash rounds, and sometimes fails on a busy machine.
    assert!(qemu_img(&dir, &["convert", "-O", "qcow2", "raw", "image"]));
    for method in [1, 2] {
        let mut bytes = fs::read(dir.path().join("image")).unwrap();
        bytes[32..36].copy_from_slice(&u32::to_be_bytes(method));
        fs::write(dir.path().join("image"), bytes).unwrap();
        let encrypted = open(&dir, "image", References::Refuse).err().unwrap().to_string();
        assert!(encrypted.contains("encryption"), "{encrypted}");
    }
}

#[test]
fn an_impossible_place_in_the_header_is_named() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "raw", "image"]) {
        return;
    }
    let whole = fs::read(dir.path().join("image")).unwrap();
    let cases = [
        (40, u64::MAX << 20, "the L1 table ends after the maximum offset of the format"),
        (40, u64::MAX - 7, "the L1 table ends after the maximum offset of the format"),
        (8, 64 << 10, "the name of the backing file is too long or outside the first cluster"),
    ];
    for (at, value, why) in cases {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        fs::write(dir.path().join("image"), bytes).unwrap();
        let said = open(&dir, "image", References::Open).err().unwrap().to_string();
        assert!(said.ends_with(&format!("damaged qcow2 data: {why}")), "{said}");
    }
}

#[test]
fn images_of_a_chain_may_be_compressed_in_different_ways() {
    let dir = with_raw();
    let base = ["convert", "-c", "-O", "qcow2", "-o", "compression_type=zstd,cluster_size=4k", "raw", "base"];
    if !qemu_img(&dir, &base) {
        return;
    }
    let mut changed = sample();
    changed[1_000_000..1_300_000].fill(b'z');
    changed[4 << 20..(4 << 20) + 200_000].copy_from_slice(&sample()[..200_000]);
    fs::write(dir.path().join("changed"), &changed).unwrap();
    for (name, method) in [("deflated", "zlib"), ("zstd", "zstd")] {
        let options = format!("compression_type={method},cluster_size=64k");
        let args =
            ["convert", "-c", "-O", "qcow2", "-B", "base", "-F", "qcow2", "-o", &options, "changed", name];
        assert!(qemu_img(&dir, &args));
        assert!(content(&open(&dir, name, References::Open).unwrap()) == changed, "{name}");
    }
}

#[test]
fn an_image_that_was_not_closed_can_be_read() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "-o", "lazy_refcounts=on", "raw", "image"]) {
        return;
    }
    let mut bytes = fs::read(dir.path().join("image")).unwrap();
    bytes[79] |= 1;
    let device = Arc::new(MemDevice::read_only(bytes));
    let device = Qcow2Device::open(device, Path::new("image"), References::Refuse).unwrap();
    assert!(content(&device) == sample());
}

#[test]
fn a_truncated_image_yields_its_bytes_and_names_the_missing_ones() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-O", "qcow2", "raw", "image"]) {
        return;
    }
    let mut bytes = fs::read(dir.path().join("image")).unwrap();
    bytes.truncate(bytes.len() - (300 << 10));
    let device = Arc::new(MemDevice::read_only(bytes));
    let device = Qcow2Device::open(device, Path::new("image"), References::Refuse).unwrap();
    let mut piece = vec![0; 1 << 20];
    device.read_at(0, &mut piece).unwrap();
    assert!(piece == sample()[..1 << 20]);
    assert!(device.read_at(device.len() - 4096, &mut piece[..4096]).is_err());
}

#[test]
fn many_threads_read_one_image() {
    let dir = with_raw();
    if !qemu_img(&dir, &["convert", "-c", "-O", "qcow2", "raw", "image"]) {
        return;
    }
    let device = open(&dir, "image", References::Refuse).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(content(&device) == sample()));
        }
    });
}

proptest! {
    // A case reads 5 MiB.
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn no_damage_of_header_or_tables_makes_it_panic(
        zstd in any::<bool>(),
        damage in prop::collection::vec((0_usize..0x6_0000, prop_oneof![Just(0_u8), Just(0xff), any::<u8>()]), 1..12),
        header in prop::collection::vec((8_usize..112, any::<u8>()), 0..3),
    ) {
        thread_local! {
            static IMAGES: Option<[Vec<u8>; 2]> = {
                let dir = with_raw();
                let made = ["zlib", "zstd"].map(|method| {
                    let options = format!("cluster_size=4k,compression_type={method}");
                    let args = ["convert", "-c", "-O", "qcow2", "-o", &options, "raw", "image"];
                    qemu_img(&dir, &args).then(|| fs::read(dir.path().join("image")).unwrap())
                });
                let [Some(deflate), Some(zstd)] = made else { return None };
                Some([deflate, zstd])
            };
        }
        let Some([deflated, packed]) = IMAGES.with(Clone::clone) else { return Ok(()) };
        let mut bytes = if zstd { packed } else { deflated };
        for (at, byte) in damage.into_iter().chain(header) {
            bytes[at] = byte;
        }
        let device = Arc::new(MemDevice::read_only(bytes));
        if let Ok(device) = Qcow2Device::open(device, Path::new("image"), References::Refuse) {
            let mut piece = vec![0; 64 << 10];
            for at in (0..device.len().min(8 << 20)).step_by(64 << 10) {
                let len = to_usize(device.len() - at).min(piece.len());
                let _ = device.read_at(at, &mut piece[..len]);
            }
        }
    }
}

/// Returns a version 3 image of 1 MiB without data. Its feature name table has a length field of `len`, in the form of
/// qemu-img (qcow2.txt, "Header extensions").
fn with_extension(len: u32) -> Vec<u8> {
    const CLUSTER: u64 = 64 << 10;
    let mut image = vec![0; 256 << 10];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &16_u32.to_be_bytes());
    put(24, &(1_u64 << 20).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(3 * CLUSTER).to_be_bytes());
    put(48, &CLUSTER.to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &112_u32.to_be_bytes());
    put(112, &0x6803_f857_u32.to_be_bytes());
    put(116, &len.to_be_bytes());
    put(120, b"\0\0dirty bit");
    put(64 << 10, &(2 * CLUSTER).to_be_bytes());
    image
}

#[test]
fn a_header_extension_of_a_wrong_length_is_damage_and_no_panic() {
    let open = |len| {
        let device = Arc::new(MemDevice::read_only(with_extension(len)));
        Qcow2Device::open(device, Path::new("image"), References::Refuse).map(|image| image.len())
    };
    assert_eq!(open(384).unwrap(), 1 << 20);
    for len in [385, 1, 47, 49, u32::MAX, 1 << 31, 64 << 10] {
        // An accepted image can be read.
        if let Err(error) = open(len) {
            assert!(matches!(error, HostError::Damaged { format: "qcow2", .. }), "{len}: {error}");
        }
    }
    assert!(matches!(open(385), Err(HostError::Damaged { .. })));
}
