use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use obento_testkit::oracle::{Oracle, program, require, run};
use proptest::prelude::*;

use super::*;

/// Returns the members with their data, and the errors.
fn read_all(archive: &[u8]) -> (Vec<(Member, Vec<u8>)>, Vec<String>) {
    let (mut members, mut errors) = (Vec::new(), Vec::new());
    let mut reader = TarReader::new(archive);
    loop {
        match reader.next_member() {
            Ok(None) => return (members, errors),
            Ok(Some(member)) => {
                let (mut data, mut part) = (Vec::new(), [0; 1000]);
                loop {
                    match reader.read_data(&mut part) {
                        Ok(0) => break,
                        Ok(len) => data.extend_from_slice(&part[..len]),
                        Err(error) => {
                            errors.push(error.to_string());
                            break;
                        }
                    }
                }
                members.push((member, data));
            }
            Err(error) => {
                errors.push(error.to_string());
                if !matches!(error, TarError::Damaged { .. } | TarError::Unfit { .. }) {
                    return (members, errors);
                }
            }
        }
    }
}

#[test]
fn data_that_begins_with_zeros_is_not_an_empty_archive() {
    let mut image = vec![0; 4096];
    let finished = |bytes: &[u8]| {
        let mut reader = TarReader::new(bytes);
        assert!(reader.next_member().unwrap().is_none());
        reader.finish().map_err(|error| error.to_string())
    };
    assert_eq!(finished(&[0; 10_240]), Ok(()));
    assert_eq!(finished(&image), Ok(()));
    // The signature of an ext4 volume.
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(finished(&image).unwrap_err().contains("other data follows the end mark of an empty archive"));
}

/// Returns a header of an old archive with its checksum.
fn header(name: &str, flag: u8, size: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[108..115].copy_from_slice(b"0000000");
    block[116..123].copy_from_slice(b"0000000");
    block[124..124 + size.len()].copy_from_slice(size);
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = flag;
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn tree(root: &Path) {
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), b"some bytes").unwrap();
    fs::hard_link(root.join("dir/file"), root.join("dir/link")).unwrap();
    symlink("x".repeat(150), root.join("symlink")).unwrap();
    fs::write(root.join("n".repeat(200)), b"long").unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    for at in [100_000, 300_000, 700_000, 900_000, 1_200_000, 1_600_000, 2_000_000] {
        sparse.write_all_at(&[7; 5000], at).unwrap();
    }
    sparse.set_len(3_000_001).unwrap();
}

#[test]
fn every_dialect_of_tar_says_the_same() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    let sparse = |version: &'static str| vec!["--format=pax", "--sparse", version];
    for arguments in [
        vec!["--format=gnu", "--sparse"],
        sparse("--sparse-version=0.0"),
        sparse("--sparse-version=0.1"),
        sparse("--sparse-version=1.0"),
        vec!["--format=pax"],
        vec!["--format=gnu"],
    ] {
        let mut tar = program("tar");
        tar.args(["-c", "--sort=name", "--mtime=@1234567890.25", "--owner=:70000", "--group=:3"]);
        let archive = run(tar.args(&arguments).arg("-C").arg(folder.path()).arg(".")).unwrap().stdout;
        let (members, errors) = read_all(&archive);
        assert_eq!(errors, Vec::<String>::new(), "{arguments:?}");
        let find = |path: &str| members.iter().find(|(member, _)| member.path == path.as_bytes()).unwrap();
        assert_eq!(find("./dir/").0.kind, MemberKind::Directory);
        let (file, data) = find("./dir/file");
        assert_eq!((file.kind, &data[..], file.size), (MemberKind::File, &b"some bytes"[..], 10));
        assert_eq!((file.uid, file.gid, file.mtime.secs()), (70_000, 3, 1_234_567_890));
        assert_eq!(
            (find("./dir/link").0.kind, &find("./dir/link").0.link[..]),
            (MemberKind::HardLink, &b"./dir/file"[..])
        );
        assert_eq!(find("./symlink").0.link, "x".repeat(150).as_bytes());
        assert_eq!(find(&format!("./{}", "n".repeat(200))).1, b"long");
        let (sparse, data) = find("./sparse");
        assert_eq!(sparse.size, 3_000_001, "{arguments:?}");
        let mut whole = vec![0; 3_000_001];
        match &sparse.map {
            None => whole.copy_from_slice(data),
            Some(map) => {
                let mut rest = &data[..];
                for range in map {
                    let (part, after) = rest.split_at((range.end - range.start) as usize);
                    whole[range.start as usize..range.end as usize].copy_from_slice(part);
                    rest = after;
                }
            }
        }
        assert_eq!(sparse.map.is_some(), arguments.contains(&"--sparse"), "{arguments:?}");
        assert!(whole == fs::read(folder.path().join("sparse")).unwrap(), "{arguments:?}");
    }
}

#[test]
fn numbers_of_every_kind_are_read() {
    assert_eq!(field::number(b"0000644\0"), Some(0o644));
    assert_eq!(field::number(b"   644 \0"), Some(0o644));
    assert_eq!(field::number(b"\0\0\0\0"), Some(0));
    assert_eq!(field::number(&[0x80, 0, 0, 0, 1, 0]), Some(256));
    assert_eq!(field::number(&[0xff, 0xff, 0xff, 0xfe]), Some(-2));
    assert_eq!(field::number(b"6x4"), None);
    assert_eq!(field::number(&[0xbf; 40]), None);
}

#[test]
fn after_damage_the_members_behind_it_are_found() {
    let mut archive = header("first", b'0', b"5").to_vec();
    archive.extend_from_slice(b"first");
    archive.resize(2 * BLOCK, 0);
    archive.extend([0xa5; 2 * BLOCK]);
    archive.extend(header("second", b'0', b"0"));
    archive.extend([0; 2 * BLOCK]);
    let (members, errors) = read_all(&archive);
    let paths: Vec<_> = members.iter().map(|(member, _)| member.path.as_slice()).collect();
    assert_eq!(paths, [&b"first"[..], b"second"]);
    assert_eq!(errors, ["the archive is damaged at byte 1024: the checksum of a header is wrong"]);
}

#[test]
fn a_truncated_archive_yields_its_members_and_is_reported() {
    let mut archive = header("whole", b'0', b"3").to_vec();
    archive.extend_from_slice(b"abc");
    archive.resize(2 * BLOCK, 0);
    archive.extend(header("cut", b'0', b"2000"));
    archive.extend([1; 700]);
    let (members, errors) = read_all(&archive);
    assert_eq!((members[0].1.as_slice(), members[1].1.len()), (&b"abc"[..], 700));
    assert_eq!(errors, ["the archive ends too early, after 2236 bytes of tar data"]);
    let (members, errors) = read_all(&archive[..2 * BLOCK]);
    assert_eq!((members.len(), errors.len()), (1, 0), "a missing end is intended");
}

#[test]
fn the_claims_of_a_header_take_no_memory() {
    for flag in [b'x', b'g', b'L', b'K', b'S'] {
        let archive = header("claims", flag, b"77777777777");
        let (members, errors) = read_all(&archive);
        assert!(members.len() <= 1, "{flag}");
        assert_eq!(
            errors.last().unwrap(),
            "the archive ends too early, after 512 bytes of tar data",
            "{flag}"
        );
    }
}

/// Returns a header of type `flag`, followed by `data` with padding.
fn with_data(name: &str, flag: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, flag, format!("{:o}", data.len()).as_bytes()).to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn paths(members: &[(Member, Vec<u8>)]) -> Vec<&str> {
    members.iter().map(|(member, _)| std::str::from_utf8(&member.path).unwrap()).collect()
}

#[test]
fn a_later_extended_header_replaces_an_earlier_one_and_global_headers_add_up() {
    let archive = [
        with_data("g", b'g', b"9 uid=77\n"),
        with_data("g", b'g', b"9 gid=88\n"),
        with_data("x", b'x', b"14 path=first\n9 uid=55\n"),
        with_data("x", b'x', b"9 gid=66\n"),
        with_data("file", b'0', b"1"),
    ]
    .concat();
    let (members, errors) = read_all(&archive);
    assert_eq!((paths(&members), errors), (vec!["file"], Vec::new()));
    assert_eq!((members[0].0.uid, members[0].0.gid), (77, 66));
}

#[test]
fn an_incremental_archive_of_gnu_tar_is_read() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    for format in ["--format=gnu", "--format=pax"] {
        let mut tar = program("tar");
        tar.args(["-c", "-G", "--sort=name", format, "-C"]).arg(folder.path()).arg(".");
        let (members, errors) = read_all(&run(&mut tar).unwrap().stdout);
        assert_eq!(errors, Vec::<String>::new(), "{format}");
        let find = |path: &str| members.iter().find(|(member, _)| member.path == path.as_bytes()).unwrap();
        assert_eq!((find("./dir/").0.kind, find("./dir/").0.size), (MemberKind::Directory, 0));
        assert_eq!(find("./dir/file").1, b"some bytes");
    }
}

#[test]
fn a_member_that_cannot_be_represented_costs_itself_alone() {
    let seal = |mut block: Block, at: usize, bytes: &[u8]| {
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block.to_vec()
    };
    let plain = || header("bad", b'0', b"0");
    let record = |key: &str, len: usize| {
        let rest = format!(" {key}={}\n", "b".repeat(len));
        format!("{}{rest}", rest.len() + 5).into_bytes()
    };
    let pax = |records: &[u8]| [with_data("x", b'x', records), with_data("bad", b'0', b"data")].concat();
    let owner = "the owner is not a number of 32 bits";
    for (bad, reason) in [
        (pax(b"18 uid=4294967296\n"), owner),
        (pax(b"9 uid=-1\n"), owner),
        (seal(plain(), 108, &[0x80, 0, 0, 1, 0, 0, 0, 0]), owner),
        (pax(b"18 gid=4294967296\n"), "the group is not a number of 32 bits"),
        (seal(plain(), 100, b"rw-r--r-"), "the mode is not a number"),
        (seal(header("bad", b'3', b"0"), 329, b"8x"), "the device number is not a number of 32 bits"),
        (pax(b"12 path=new\n9 uid\n"), "an extended header contains a record with a wrong length"),
        (seal(header("bad", b'S', b"0"), 386, b"x"), "the map of holes is damaged"),
        (pax(&record("path", 70_000)), "the path or the link target of the member is too long"),
        (pax(&record("linkpath", 70_000)), "the path or the link target of the member is too long"),
        ([with_data("L", b'L', &[b'n'; 70_000]), with_data("bad", b'0', b"")].concat(), TOO_LONG),
    ] {
        let archive = [&bad, &with_data("good", b'0', b"good")[..]].concat();
        let (members, errors) = read_all(&archive);
        assert_eq!((paths(&members), errors), (vec!["good"], vec![reason.to_owned()]));
    }
}

#[test]
fn global_headers_cannot_grow_without_end() {
    let value = "v".repeat(10_000);
    let mut archive: Vec<u8> = (0..20)
        .flat_map(|n| {
            let record = format!("10013 key{n:02}={value}\n");
            assert_eq!(record.len(), 10_013);
            with_data("g", b'g', record.as_bytes())
        })
        .collect();
    archive.extend(with_data("file", b'0', b"1"));
    let (members, errors) = read_all(&archive);
    assert_eq!(paths(&members), ["file"]);
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("global extended headers")));
}

#[test]
fn members_share_the_attributes_of_global_headers_and_each_counts_their_bytes() {
    let archive = [
        with_data("g", b'g', b"28 SCHILY.xattr.user.a=long\n"),
        with_data("g", b'g', b"28 comment=of the archive..\n"),
        with_data("first", b'0', b"1"),
        with_data("x", b'x', b"25 SCHILY.xattr.user.b=2\n9 uid=55\n"),
        with_data("own", b'0', b"1"),
        with_data("x", b'x', b"9 uid=66\n"),
        with_data("last", b'0', b"1"),
    ]
    .concat();
    let (members, errors) = read_all(&archive);
    assert_eq!((paths(&members), errors), (vec!["first", "own", "last"], Vec::new()));
    let [(first, _), (own, _), (last, _)] = &members[..] else { panic!() };
    assert!(Arc::ptr_eq(&first.xattrs, &last.xattrs));
    let names =
        |member: &Member| -> Vec<_> { member.xattrs.iter().map(|xattr| xattr.name.clone()).collect() };
    assert_eq!(
        (names(first), names(own)),
        (vec![b"user.a".into()], vec![b"user.a".into(), b"user.b".into()])
    );
    assert_eq!((own.uid, last.uid), (55, 66));
    // The key and the value of the attribute, without the comment.
    let bytes = "SCHILY.xattr.user.a".len() as u64 + 4;
    assert_eq!([first, own, last].map(Member::additional), [bytes; 3]);
}

proptest! {
    #[test]
    fn the_reader_ends_for_any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..6000), seals in 0..12_usize) {
        for at in 0..seals.min(bytes.len() / BLOCK) {
            let block = &mut bytes[at * BLOCK..(at + 1) * BLOCK];
            block[124..136].copy_from_slice(b"00000001000\0");
            block[156] = b"0xgLKS15"[at % 8];
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let (members, errors) = read_all(&bytes);
        prop_assert!(members.len() + errors.len() <= 2 * (bytes.len() / BLOCK + 1));
    }
}
