//! The initial inputs of the fuzzer: real structures, files and messages.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use obento::engine::types::TYPES;
use obento_base::wire::{to_u64, to_usize};
use obento_block::{BlockDevice as _, MemDevice};
use obento_linux_wire::{
    Answer, Entry, Envelope, Fill, NewFile, Piece, Place, Request, Run, Stat, Step, Usage, encode,
};

use obento_testkit::vhdx::unreplayed;

use crate::archives::hex;
use crate::images::QCOW2_HEADER;
use crate::volumes::{EXFAT, EXT4, FAST, FAT, FAT16, FAT32, JFFS2, NTFS, XV6, unpacked};
use crate::{Target, places};

/// Inputs.
pub type Seeds = Vec<Vec<u8>>;

/// The number of structures of a kind, and of changes to a volume.
const SOME: usize = 24;
/// The number of bytes of an image. Decoders read mainly its start.
const START: usize = 64 << 10;

/// The environment variable with the folder to which a program writes its seeds instead of fuzzing.
const ASKED: &str = "OBENTO_SEEDS";

/// Writes the seeds of `target` if the environment requests it, and exits.
pub fn write_if_asked(target: &Target) {
    let Some(folder) = std::env::var_os(ASKED) else { return };
    let written = write(target, folder.as_ref());
    std::process::exit(written.map_or_else(
        |error| {
            eprintln!("cannot write seeds: {error}");
            1
        },
        |()| 0,
    ));
}

fn write(target: &Target, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let seeds = (target.seeds)();
    seeds
        .iter()
        .enumerate()
        .try_for_each(|(number, seed)| fs::write(folder.join(format!("sound-{number}")), seed))
}

/// Returns the structures of a kind of ext4, each after the byte that chooses its position.
pub fn places(kind: &str) -> Seeds {
    let (base, places) = places::of(kind);
    let step = places.len().min(256).div_ceil(SOME);
    let seed = |(choice, &(offset, len)): (usize, &(u64, usize))| {
        let mut input = vec![0; len + 1];
        base.read_at(offset, &mut input[1..]).expect("the place is on the volume");
        input[0] = u8::try_from(choice).expect("below 256");
        input
    };
    places.iter().enumerate().take(256).step_by(step).map(seed).collect()
}

/// Returns inputs that leave a volume unchanged: four bytes are an offset and the existing byte there. They are in
/// blocks that are not empty, eight in each.
pub fn unchanged(volume: &Arc<MemDevice>) -> Seeds {
    // Three bytes are an offset.
    let bytes = start_of(volume, 1 << 24);
    let used: Vec<_> =
        (0..bytes.len()).step_by(512).filter(|&at| bytes[at..at + 512].iter().any(|&b| b != 0)).collect();
    let in_block = |&block: &usize| {
        let set = (block..block + 512).filter(|&at| bytes[at] != 0).take(8);
        set.flat_map(|at| [at as u8, (at >> 8) as u8, (at >> 16) as u8, bytes[at]]).collect()
    };
    used.iter().step_by(used.len().div_ceil(SOME)).map(in_block).collect()
}

/// Returns the first bytes of a volume, at most `most`, without trailing zeros.
fn start_of(volume: &Arc<MemDevice>, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(volume.len()).min(most)];
    volume.read_at(0, &mut bytes).expect("memory does not fail");
    bytes
}

fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes
}

/// Returns inputs with the format of each volume, the plan, and changes that write the existing bytes.
pub fn operations() -> Seeds {
    let volumes = [&EXT4, &FAT, &EXFAT, &XV6];
    let of = |(format, volume): (u8, &Arc<MemDevice>)| {
        let plans = unchanged(volume).into_iter().zip(0_u8..);
        plans.map(move |(changes, plan)| [&[format, 0, 0, plan], &changes[..]].concat()).collect::<Seeds>()
    };
    (0..).zip(volumes).flat_map(|(format, volume)| of((format, volume))).collect()
}

const BZIP2: &[u8] = include_bytes!("../seed/fat.img.bz2");
const GZIP: &[u8] = include_bytes!("../seed/fat.img.gz");
const LZMA: &[u8] = include_bytes!("../seed/fat.img.lzma");
const XZ: &[u8] = include_bytes!("../seed/fat.img.xz");
const ZSTD: &[u8] = include_bytes!("../seed/fat.img.zst");

/// Returns a FAT12 image compressed by each program, in the order of the target `packed`.
pub fn packed() -> Seeds {
    (0..).zip([GZIP, XZ, ZSTD, BZIP2, LZMA]).map(|(choice, stream)| [&[choice], stream].concat()).collect()
}

/// Returns an empty qcow2 image of 1 MiB with the header extension that qemu-img writes: the names of features. Source:
/// qcow2.txt, "Header".
pub fn sound_qcow2() -> Vec<u8> {
    const CLUSTER: usize = 4096;
    let mut image = vec![0; 4 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let cluster = |number: usize| to_u64(number * CLUSTER).to_be_bytes();
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &12_u32.to_be_bytes());
    put(24, &(1_u64 << 20).to_be_bytes());
    // The L1 table, the table of reference counts and its length in clusters, the width of a count, and the length of
    // this header.
    put(36, &1_u32.to_be_bytes());
    put(40, &cluster(3));
    put(48, &cluster(1));
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &112_u32.to_be_bytes());
    put(112, &0x6803_f857_u32.to_be_bytes());
    put(116, &96_u32.to_be_bytes());
    put(120, b"\0\0dirty bit");
    put(168, b"\0\x01corrupt bit");
    put(CLUSTER, &cluster(2));
    image
}

/// Returns the same image with a snapshot, whose L1 table has an L2 table with one cluster. Source: qcow2.txt,
/// "Snapshots".
pub fn qcow2_with_snapshot() -> Vec<u8> {
    const CLUSTER: usize = 4096;
    let mut image = sound_qcow2();
    image.resize(8 * CLUSTER, 0);
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let cluster = |number: usize| to_u64(number * CLUSTER).to_be_bytes();
    put(60, &1_u32.to_be_bytes());
    put(64, &cluster(4));
    let mut entry = cluster(5).to_vec();
    entry.extend([0, 0, 0, 1, 0, 1, 0, 6]);
    entry.extend([0; 20]);
    entry.extend(16_u32.to_be_bytes());
    entry.extend([0; 8]);
    entry.extend((1_u64 << 20).to_be_bytes());
    entry.extend(b"1before");
    put(4 * CLUSTER, &entry);
    put(5 * CLUSTER, &cluster(6));
    put(6 * CLUSTER, &cluster(7));
    put(7 * CLUSTER, b"the contents at the snapshot");
    image
}

/// Returns the same image as written by qemu-img, with and without compression, of versions 3 and 2.
fn qcow2_images() -> Seeds {
    let both: [&[u8]; 2] = [include_bytes!("../seed/fat.qcow2.zst"), include_bytes!("../seed/old.qcow2.zst")];
    both.map(unpacked).into()
}

/// Returns those images, one with a snapshot, and the later part of a header alone.
pub fn qcow2() -> Seeds {
    let header = sound_qcow2().get(QCOW2_HEADER).unwrap_or_default().to_vec();
    qcow2_images().into_iter().chain([qcow2_with_snapshot(), header]).collect()
}

/// The same image in other formats, written by qemu-img and img2simg, and a VHDX whose log was not replayed.
pub fn containers_whole() -> &'static [Vec<u8>] {
    static IMAGES: LazyLock<Seeds> = LazyLock::new(|| {
        let files: [&[u8]; 8] = [
            include_bytes!("../seed/fixed.vhd.zst"),
            include_bytes!("../seed/fat.vhd.zst"),
            include_bytes!("../seed/fat.vhdx.zst"),
            include_bytes!("../seed/before.vhdx.zst"),
            include_bytes!("../seed/fat.vmdk.zst"),
            include_bytes!("../seed/stream.vmdk.zst"),
            include_bytes!("../seed/fat.vdi.zst"),
            include_bytes!("../seed/fat.simg.zst"),
        ];
        let mut images = files.map(unpacked);
        images[3] = unreplayed(&images[3], &unpacked(include_bytes!("../seed/after.vhdx.zst")));
        images.into()
    });
    &IMAGES
}

/// Each of those images, with no change and with a change of one byte.
pub fn containers() -> Seeds {
    (0..8).flat_map(|choice| [vec![choice], vec![choice, 32, 0, 0, 1]]).collect()
}

/// Returns the starts of volumes that open without the rest, and a FAT volume in each supported container and in a partition.
pub fn images() -> Seeds {
    let volumes = [&EXT4, &FAST, &FAT, &FAT16, &FAT32, &EXFAT, &JFFS2, &NTFS, &XV6];
    let starts = volumes.into_iter().map(|volume| without_zeros(start_of(volume, START)));
    let streams = [GZIP, XZ, ZSTD, BZIP2, LZMA].into_iter().map(<[u8]>::to_vec);
    starts.chain(streams).chain(qcow2_images()).chain([partitioned()]).collect()
}

/// Compressed data of each codec of JFFS2, after its number.
pub fn jffs2_codecs() -> Seeds {
    let rtime = vec![2, b'a', 0, b'b', 0, b'a', 9];
    let rubin = vec![5, 0x12, 0x34, 0x56, 0x78, 0x9a];
    let dynamic = vec![3, 9, 200, 128, 1, 255, 77, 3, 90, 0x12, 0x34, 0x56, 0x78];
    let zlib = vec![6, 0x78, 0x9c, 0x4b, 0x4c, 0x4a, 0x4e, 0x4c, 0x4a, 0x4e, 4, 0];
    let lzo = vec![7, 20, b'a', b'b', b'c', 0x48, 0, 17, 0, 0];
    vec![rtime, rubin, dynamic, zlib, lzo]
}

/// Returns compressed data of each method of bcachefs, after the byte that chooses the method.
pub fn bcachefs_codecs() -> Seeds {
    // LZ4: literals, a copy of them, a literal.
    let lz4 = vec![0, 0x35, b'a', b'b', b'c', 3, 0, 0x10, b'x'];
    // Deflate: a stored block of two bytes.
    let gzip = vec![1, 1, 2, 0, 0xfd, 0xff, b'a', b'b'];
    // Zstandard: its length, a frame of one segment, a raw block of two bytes.
    let zstd = vec![2, 11, 0, 0, 0, 0x28, 0xb5, 0x2f, 0xfd, 0x20, 2, 0x11, 0, 0, b'a', b'b'];
    vec![lz4, gzip, zstd]
}

/// Returns compressed data of each method of NTFS, after the byte that chooses the method.
pub fn ntfs_codecs() -> Seeds {
    // LZNT1: a literal byte, and a copy of it.
    let lznt1 = vec![0, 3, 0xb0, 2, b'a', 0xfc, 0x0f];
    // XPRESS: two codes of one bit, for `a` and for a copy of the byte before, followed by the bits.
    let mut xpress = vec![0; 1 + 256 + 8];
    (xpress[0], xpress[1 + 48], xpress[1 + 128]) = (1, 0x10, 1);
    xpress[257..259].copy_from_slice(&[0x00, 0x40]);
    // LZX: an uncompressed block.
    let mut lzx = vec![2, 0x00, 0x70, 0, 0];
    lzx.extend([1, 0, 0, 0].repeat(3));
    lzx.extend(vec![7; 1 << 15]);
    vec![lznt1, xpress, lzx]
}

/// Returns a boot record whose first partition is a FAT volume.
fn partitioned() -> Vec<u8> {
    let mut disk = vec![0; 4096];
    disk[446..462].copy_from_slice(&[0, 0, 2, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(without_zeros(start_of(&FAT, START)));
    disk
}

/// Returns boot records with partitions at each position, and a GPT with two partitions and both headers.
pub fn partition_tables() -> Seeds {
    let record = |kind: u8, at: u8, len: u8| [0, 0, 0, 0, kind, 0, 0, 0, at, 0, 0, 0, len, 0, 0, 0];
    let none = [0; 16];
    // Boot records are a chain: the extended partition begins in sector 1, the next logical partition in sector 2.
    let first = [record(0x83, 40, 8), record(5, 1, 30), record(7, 50, 8), none];
    let logical = [record(0x83, 2, 4), record(5, 1, 20), none, none];
    let last = [record(0x83, 6, 4), none, none, none];
    let boot = [&[1], first.as_flattened(), logical.as_flattened(), last.as_flattened()].concat();
    let gpt = |scheme: u8, here: u8, other: u8| {
        let mut header = vec![0; 92];
        header[24] = here;
        header[32] = other;
        header[40] = 6;
        header[48] = 58;
        header[72] = 2;
        header[80] = 4;
        header[84] = 128;
        let entry = |first: u8, last: u8| {
            let mut entry = vec![first; 32];
            entry.extend([u64::from(first), u64::from(last), 0].map(u64::to_le_bytes).concat());
            entry.extend(b"n\0a\0m\0e\0");
            entry.resize(128, 0);
            entry
        };
        [&[scheme][..], &header, &entry(8, 15), &entry(20, 30)].concat()
    };
    vec![boot, gpt(2, 1, 63), gpt(3, 63, 1)]
}

/// A compressed archive: the layer to which a layout of [`sources`] refers.
pub const LAYER: &[u8] = include_bytes!("../seed/ustar.tar.zst");

/// Returns archives created by GNU tar: ustar, the GNU format, and pax with attributes, access control lists, and
/// sparse files of each kind.
pub fn archives() -> Seeds {
    let packed: [&[u8]; 5] = [
        include_bytes!("../seed/ustar.tar.zst"),
        include_bytes!("../seed/gnu.tar.zst"),
        include_bytes!("../seed/pax.tar.zst"),
        include_bytes!("../seed/sparse-0.0.tar.zst"),
        include_bytes!("../seed/sparse-0.1.tar.zst"),
    ];
    packed.map(unpacked).into()
}

const MTREE: &[u8] = b"#mtree 2.0\n/set type=file uid=0 gid=0 mode=0644\n. type=dir mode=0755\n\
    etc type=dir mode=0755 time=12.5\n    passwd size=10 contents=file xattr.user.note=dmFsdWU=\n    \\040odd\\\\ contents=file\n\
    null type=char device=native,1,3 mode=0666\n    link type=link link=passwd\n..\n/unset mode\n\
    ./etc/pipe type=fifo \\\n  mode=0600 rdev=0x103\n";
const DUMP: &[u8] = b"/ 0 40755 2 0 0 0 1.0 - - -\n/etc 0 40755 2 0 0 0 1.0 - - -\n\
    /etc/a\\x20b 4 100644 1 0 7 0 12.5 - x\\tyz - user.a=1\\\\2\n/etc/file 10 100644 1 0 0 0 1.0 file - -\n\
    /etc/link 4 120777 1 0 0 0 1.0 file - -\n/etc/null 0 20666 1 0 0 259 1.0 - - -\n/etc/same 0 @100644 1 0 0 0 1.0 /etc/file - -\n";

/// Returns a source of each kind, after the byte that chooses the kind.
pub fn sources() -> Seeds {
    let layer = hex(LAYER);
    let descriptor = format!("{{\"digest\":\"sha256:{layer}\",\"size\":{}}}", LAYER.len());
    let manifest = format!("{{\"schemaVersion\":2,\"layers\":[{descriptor}]}}");
    let platform = "\"platform\":{\"os\":\"linux\",\"architecture\":\"arm\",\"variant\":\"v7\"}";
    let tag = "\"annotations\":{\"org.opencontainers.image.ref.name\":\"latest\"}";
    let index = format!(
        "{{\"schemaVersion\":2,\"manifests\":[{{\"digest\":\"sha256:{layer}\",\"size\":0,{platform},{tag}}}]}}"
    );
    let texts = [(0, MTREE), (1, DUMP), (4, index.as_bytes()), (5, manifest.as_bytes())];
    let texts = texts.into_iter().map(|(kind, text)| [&[kind], text].concat());
    let archives =
        archives().into_iter().flat_map(|archive| [2, 3].map(|kind| [&[kind], &archive[..]].concat()));
    texts.chain(archives).collect()
}

/// The node ID of `/file` after its lookup.
const FILE: u8 = 4;

/// Returns requests that read each file, change something in each way, and have a wrong length.
pub fn requests() -> Seeds {
    let ask = |opcode: u8, node: u8, body: &[u8]| {
        let len = u16::try_from(body.len()).expect("a short one").to_le_bytes();
        [&[opcode, node, len[0], len[1]], body].concat()
    };
    let zeros = [0; 96];
    let with_name = |len: usize, name: &str| [&zeros[..len], name.as_bytes(), &[0]].concat();
    let read = |len: u8| [&zeros[..16], &[len, 0, 0, 0], &zeros[..20]].concat();
    // LOOKUP, GETATTR, READ, WRITE, READDIRPLUS, STATFS, SYMLINK; Linux include/uapi/linux/fuse.h.
    let look = [
        ask(1, 1, b"file\0"),
        ask(3, FILE, &zeros[..16]),
        ask(15, FILE, &read(200)),
        ask(16, FILE, &[&zeros[..16], &[4, 0, 0, 0], &zeros[..20], b"data"].concat()),
        ask(44, 1, &read(250)),
        ask(17, 1, b""),
        ask(6, 1, b"symbolic\0target\0"),
    ];
    // LOOKUP, MKDIR, MKNOD of a regular file, LINK, RENAME, UNLINK, RMDIR.
    let names = [
        ask(1, 1, b"file\0"),
        ask(9, 1, &with_name(8, "new")),
        ask(8, 1, &[&[0xa4, 0x81][..], &with_name(14, "node")].concat()),
        ask(13, 1, &[&[FILE][..], &with_name(7, "again")].concat()),
        ask(12, 1, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], b"file\0other\0"].concat()),
        ask(10, 1, b"other\0"),
        ask(11, 1, b"new\0"),
    ];
    // LOOKUP, SETATTR, SETXATTR, LISTXATTR, GETXATTR, FALLOCATE, LSEEK.
    let rest = [
        ask(1, 1, b"file\0"),
        ask(4, FILE, &[&[8][..], &zeros[..87]].concat()),
        ask(21, FILE, &[&[5][..], &zeros[..15], b"user.a\0value"].concat()),
        ask(23, FILE, &[&[64][..], &zeros[..7]].concat()),
        ask(22, FILE, &[&[64][..], &zeros[..7], b"user.a\0"].concat()),
        ask(43, FILE, &[&zeros[..16], &[0, 4], &zeros[..14]].concat()),
        ask(46, FILE, &[&zeros[..16], &[3], &zeros[..7]].concat()),
    ];
    // FSYNC, FORGET, BATCH_FORGET, COPY_FILE_RANGE, TMPFILE, RENAME2, and a READ whose length field is too large.
    let last = [
        ask(1, 1, b"file\0"),
        ask(20, FILE, &zeros[..16]),
        ask(2, FILE, &[&[1][..], &zeros[..7]].concat()),
        ask(42, 0, &[&[1, 0, 0, 0, 0, 0, 0, 0, FILE][..], &zeros[..15]].concat()),
        ask(47, FILE, &zeros[..56]),
        ask(51, 1, &with_name(16, "x")),
        [&[15, FILE, 40, 0x80], &zeros[..40]].concat(),
    ];
    vec![look.concat(), names.concat(), rest.concat(), last.concat()]
}

/// Returns access control lists with three entries and with entries of all kinds. Source: Linux
/// include/uapi/linux/posix_acl_xattr.h.
pub fn acls() -> Seeds {
    let list = |entries: &[(u8, u8, u32)]| {
        let entry = |&(tag, perm, id): &(u8, u8, u32)| [&[tag, 0, perm, 0][..], &id.to_le_bytes()].concat();
        [&[2, 0, 0, 0][..], &entries.iter().flat_map(entry).collect::<Vec<_>>()].concat()
    };
    let nobody = u32::MAX;
    let three = list(&[(1, 6, nobody), (4, 4, nobody), (0x20, 0, nobody)]);
    let all = list(&[
        (1, 7, nobody),
        (2, 6, 1000),
        (4, 4, nobody),
        (8, 5, 7),
        (0x10, 7, nobody),
        (0x20, 1, nobody),
    ]);
    vec![three, all]
}

/// Returns both files of a small system.
pub fn owners() -> Seeds {
    let passwd = b"root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\nbento:x:1000:1000:Bento:/home/bento:/bin/sh\n";
    vec![[&passwd[..], b"\0", b"root:x:0:\nbento:x:1000:bento,daemon\n"].concat()]
}

/// Returns a few bytes for each type of the kernel engine.
pub fn signatures() -> Seeds {
    (0..TYPES.len())
        .filter_map(|choice| Some(vec![u8::try_from(choice).ok()?, 1, 0, b'a', 2, 0, 0, 4]))
        .collect()
}

/// Returns requests and replies of the kernel engine, one of each shape.
pub fn messages() -> Seeds {
    let entry = Entry { name: b"name".into(), next: 2, stat: Some(Stat::default()), errno: 0 };
    let answers = [
        Answer::Failed { errno: 5 },
        Answer::Done {},
        Answer::Mounted { root: Stat::default(), usage: Usage::default(), file_size_max: 1 },
        Answer::Entries { entries: vec![entry], is_end: true },
        Answer::Bytes { bytes: b"bytes".into() },
        Answer::Filled { fills: vec![Fill { len: 1, errno: 0 }] },
        Answer::Runs { runs: vec![Run { end: 9, is_data: true, place: Some(4) }] },
        Answer::Made { errnos: vec![0, 17] },
    ];
    let place = Some(Place { dir: 1, name: b"name".into() });
    let requests = [
        Request::Mount { kind: b"xfs".into(), options: b"ro".into(), read_only: true },
        Request::List { dir: 1, from: 0 },
        Request::Look { dir: 1, name: b"name".into() },
        Request::Read { pieces: vec![Piece { ino: 2, place, offset: 0, len: 9 }] },
        Request::MakeFiles { dir: 1, files: vec![NewFile { name: b"new".into(), ..NewFile::default() }] },
    ];
    let steps = || vec![Step { dir: 1, name: b"name".into(), ino: 2 }];
    let envelopes =
        requests.map(|request| Envelope { forget: vec![3], steps: steps(), request: Some(request) });
    answers.iter().map(encode).chain(envelopes.iter().map(encode)).collect()
}
