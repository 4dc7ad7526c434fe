//! Inspection of the on-disk structures: every field is where it claims to be.

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use obento_base::{Corrupt, Error, Ino, Name};
use obento_driver::{FieldValue, FileSystem as _, Record, Target};
use obento_ext4::Ext4;
use obento_testkit::oracle::{LoopMount, Oracle, call, corpus, program, require};

fn records(fs: &Ext4, target: Target) -> (Vec<Record>, Vec<Error>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    fs.inspect()
        .unwrap()
        .inspect(target, &mut |record| match record {
            Ok(record) => records.push(record),
            Err(error) => errors.push(error),
        })
        .unwrap();
    (records, errors)
}

fn number(record: &Record, name: &str) -> u64 {
    match record.fields.iter().find(|field| field.name == name).map(|field| &field.value) {
        Some(&(FieldValue::Number(value) | FieldValue::Hex(value))) => value,
        other => panic!("{name} of {record:?} is {other:?}"),
    }
}

/// Tests that each number and each run of bytes is at its place on the device, in the byte order of its format.
fn check_places(fs: &Ext4, records: &[Record]) {
    for record in records {
        // Composed from parts, or derived.
        let composed = ["blocks", "ee_start", "copy", "use", "block", "blocknr"];
        for field in record.fields.iter().filter(|field| !composed.contains(&field.name)) {
            let mut bytes = vec![0; usize::try_from(field.len).unwrap()];
            fs.device().unwrap().read_at(field.offset, &mut bytes).unwrap();
            let fold = |n: u64, byte: &u8| n << 8 | u64::from(*byte);
            let expected = match record.kind.starts_with("journal") || record.kind == "block tag" {
                true => bytes.iter().fold(0, fold),
                false if bytes.len() <= 8 => bytes.iter().rev().fold(0, fold),
                false => 0,
            };
            match &field.value {
                FieldValue::Number(value) | FieldValue::Hex(value) => {
                    assert_eq!(*value, expected, "{} of {record:?}", field.name);
                }
                FieldValue::Bytes(value) => assert_eq!(*value, bytes, "{} of {record:?}", field.name),
                FieldValue::Text(_) => {}
            }
        }
    }
}

fn lookup(fs: &Ext4, dir: Ino, name: &str) -> Ino {
    fs.lookup(dir, Name::new(name.as_bytes()).unwrap()).unwrap()
}

fn prepare(root: &Path) {
    fs::create_dir(root.join("wide")).unwrap();
    for n in 0..900 {
        File::create(root.join(format!("wide/{n:0>100}"))).unwrap();
    }
    let mut scattered = File::create(root.join("scattered")).unwrap();
    for n in 0..700 {
        use std::io::{Seek as _, SeekFrom, Write as _};
        scattered.seek(SeekFrom::Start(n * 8192)).unwrap();
        scattered.write_all(&[1; 1024]).unwrap();
    }
    add_attributes(&root.join("scattered"));
}

/// Adds more attributes than fit the inode.
fn add_attributes(file: &Path) {
    for n in ["1", "2", "3", "4"] {
        let (name, value) = (format!("user.{n}"), n.repeat(if n == "1" { 7 } else { 40 }));
        call("setfattr", ["-n".as_ref(), name.as_ref(), "-v".as_ref(), value.as_ref(), file.as_os_str()])
            .unwrap();
    }
}

fn image(folder: &Path, mke2fs: &[&str]) -> PathBuf {
    let (image, copy) = (folder.join("image"), folder.join("copy"));
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let args = ["-q", "-F", "-b", "1024"].iter().chain(mke2fs).copied();
    call("mke2fs", args.chain([image.to_str().unwrap()])).unwrap();
    let mount = LoopMount::new(&image, "").unwrap();
    prepare(mount.path());
    call("sync", ["-f".as_ref(), mount.path().as_os_str()]).unwrap();
    fs::remove_file(mount.path().join(format!("wide/{:0>100}", 7))).unwrap();
    File::create(mount.path().join("last")).unwrap().sync_all().unwrap();
    fs::copy(&image, &copy).unwrap();
    mount.unmount().unwrap();
    copy
}

#[test]
fn every_field_is_at_its_offset() {
    if !require(&[
        Oracle::LoopMount,
        Oracle::Program("mke2fs"),
        Oracle::Program("sync"),
        Oracle::Program("setfattr"),
    ]) {
        return;
    }
    for mke2fs in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-O", "fast_commit,^64bit"]] {
        let folder = tempfile::tempdir().unwrap();
        let fs = common::open(&image(folder.path(), mke2fs)).unwrap();
        let (wide, scattered) = (lookup(&fs, fs.root(), "wide"), lookup(&fs, fs.root(), "scattered"));
        let shown = |target| {
            let (records, errors) = records(&fs, target);
            assert_eq!(errors, [], "{mke2fs:?} {target:?}");
            check_places(&fs, &records);
            records
        };
        let count = |records: &[Record], kind| records.iter().filter(|record| record.kind == kind).count();

        assert_eq!(number(&shown(Target::SuperBlock(0))[0], "s_magic"), 0xef53);
        assert_eq!(number(&shown(Target::SuperBlock(1))[0], "s_block_group_nr"), 1);
        let group = &shown(Target::Group(3))[0];
        assert!(number(group, "bg_inode_table_lo") > 0);

        let inode = shown(Target::Inode(scattered));
        assert_eq!(number(&inode[0], "i_size_lo"), 699 * 8192 + 1024);
        match mke2fs.contains(&"ext3") {
            true => assert!(count(&inode, "block numbers") > 3),
            false => assert_eq!(count(&inode, "extent"), 700),
        }

        assert_eq!((count(&inode, "attribute header"), count(&inode, "attribute")), (2, 4));
        let value = inode.iter().flat_map(|record| &record.fields).find(|field| field.name == "value");
        assert_eq!(value.map(|field| &field.value), Some(&FieldValue::Bytes(b"1".repeat(7))));

        let directory = shown(Target::Directory(wide));
        let used =
            directory.iter().filter(|record| record.kind == "directory entry" && number(record, "inode") > 0);
        assert_eq!(used.count(), if mke2fs.contains(&"fast_commit,^64bit") { 902 } else { 901 });
        assert_eq!(count(&directory, "index root"), 1);
        assert!(count(&directory, "index entry") > 80);

        let journal = shown(Target::Journal);
        assert_eq!(number(&journal[0], "h_magic"), 0xc03b_3998);
        assert!(count(&journal, "journal descriptor") > 0 && count(&journal, "journal commit") > 0);
        assert!(count(&journal, "block tag") > count(&journal, "journal descriptor"));

        let purpose = |number| {
            let record = &shown(Target::Block(number))[0];
            match &record.fields[0].value {
                FieldValue::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            (purpose(0).as_str(), purpose(1).as_str()),
            ("boot block", "super block, copy in group 0")
        );
        assert_eq!(purpose(number(group, "bg_inode_table_lo")), "inode table of group 3");
        let place = journal[0].fields[0].offset / 1024;
        assert_eq!((purpose(place).as_str(), purpose(65_535).as_str()), ("block 0 of the journal", "free"));
    }
}

#[test]
fn missing_files_are_not_found() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    call("mke2fs", ["-q", "-F", "-t", "ext2", image.to_str().unwrap()]).unwrap();
    let fs = common::open(&image).unwrap();
    let error =
        |target| fs.inspect().unwrap().inspect(target, &mut |_| panic!("nothing to show")).unwrap_err();
    assert_eq!(error(Target::SuperBlock(9)), Error::NotFound);
    assert_eq!(error(Target::Group(1 << 40)), Error::NotFound);
    assert_eq!(error(Target::Inode(Ino(0))), Error::NotFound);
    assert_eq!(error(Target::Block(8192)), Error::NotFound);
    assert_eq!(error(Target::Directory(Ino(7))), Error::Invalid);
    assert_eq!(error(Target::Journal), Error::NotSupported);
}

#[test]
fn damaged_images_are_inspected_to_the_end() {
    use std::io::Read as _;
    if !require(&[Oracle::Corpus]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for entry in corpus().unwrap().read_dir().unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = Vec::new();
        let unpacked = flate2::read::MultiGzDecoder::new(File::open(&path).unwrap()).take(64 << 20);
        let mut unpacked = unpacked;
        // Larger images are sparse; their start suffices here.
        unpacked.read_to_end(&mut bytes).unwrap_or(0);
        fs::write(&image, bytes).unwrap();
        let Ok(fs) = common::open(&image) else { continue };
        let (mut shown, mut count) = (Vec::new(), 0_u32);
        let targets = (0..4).map(Target::SuperBlock);
        let targets =
            targets.chain((0..8).map(Target::Group)).chain((0..40).map(|ino| Target::Inode(Ino(ino))));
        let targets = targets.chain((0..40).map(|ino| Target::Directory(Ino(ino))));
        for target in targets.chain((0..40).map(Target::Block)).chain([Target::Journal]) {
            let outcome =
                fs.inspect().unwrap().inspect(target, &mut |record| count += u32::from(record.is_ok()));
            shown.push(outcome.is_ok());
        }
        assert!(count > 0, "{}", path.display());
    }
}

#[test]
fn a_directory_block_with_a_wrong_checksum_is_reported_after_its_records() {
    use std::os::unix::fs::FileExt as _;
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::LoopMount]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path(), &["-t", "ext4"]);
    // After the journal is replayed, the blocks are read from their places.
    program("e2fsck").arg("-fy").arg(&image).output().unwrap();
    let fs = common::open(&image).unwrap();
    let wide = lookup(&fs, fs.root(), "wide");
    let (before, errors) = records(&fs, Target::Directory(wide));
    assert_eq!(errors, []);
    // The flags of the root, a hash in the table of a node, and a letter of a name.
    let of =
        |kind: &str, nth: usize| before.iter().filter(|r| r.kind == kind).nth(nth).unwrap().fields[0].offset;
    for place in [of("index root", 0) + 7, of("index entry", 3), of("directory entry", 99) + 9] {
        let file = File::options().read(true).write(true).open(&image).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 2], place).unwrap();
        let (after, errors) = records(&common::open(&image).unwrap(), Target::Directory(wide));
        assert_eq!(after.len(), before.len());
        let [Error::Corrupt(Corrupt::Checksum { block, .. })] = errors[..] else { panic!("{errors:?}") };
        assert_eq!(block, place / 1024);
        file.write_all_at(&byte, place).unwrap();
    }
}
