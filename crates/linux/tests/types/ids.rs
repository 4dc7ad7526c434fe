//! Labels and identifiers that are read without a kernel, compared with blkid.

use std::fs;
use std::path::Path;

use obento_block::MemDevice;
use obento_driver::Driver as _;
use obento_testkit::oracle::{Oracle, call, require};

use super::image::{Image, driver};

/// The label and the identifier that blkid reports for an image.
fn by_blkid(image: &Path) -> (Option<String>, Option<String>) {
    let output = call("blkid", ["-p".as_ref(), "-o".as_ref(), "export".as_ref(), image.as_os_str()]).unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    // blkid escapes characters for a shell.
    let value =
        |key: &str| lines.lines().find_map(|line| line.strip_prefix(key)).map(|text| text.replace('\\', ""));
    (value("LABEL="), value("UUID="))
}

/// The same values from the probe of the type `name`.
fn by_probe(name: &str, image: &Path) -> (Option<String>, Option<String>) {
    let probe = driver(name).probe(&MemDevice::new(fs::read(image).unwrap())).unwrap().unwrap();
    let label = String::from_utf8(probe.label).unwrap();
    let uuid = probe.uuid.map(|uuid| {
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    });
    let serial = probe.serial.map(|serial| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff));
    (Some(label).filter(|label| !label.is_empty()), uuid.or(serial).or(probe.text_id))
}

#[track_caller]
fn compare(name: &str, image: &Path, case: &str) {
    let theirs = by_blkid(image);
    assert!(theirs.1.is_some(), "{case}: blkid reports no identifier");
    assert_eq!(by_probe(name, image), theirs, "{case}");
}

#[test]
fn labels_and_identifiers_in_images_of_the_recipes_are_those_of_blkid() {
    if !require(&[Oracle::Program("blkid")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    // The fields that an empty volume lacks: the identifier of the Finder; a boot sector with serial number and label.
    let id: &[u8] = &[0x12, 0xab, 0x34, 0xcd, 0x56, 0xef, 0x78, 0x90];
    let of_hpfs: &[(usize, &[u8])] =
        &[(0x26, b"\x28"), (0x27, b"\xef\xbe\xad\xde"), (0x2b, b"OS2 DISK   HPFS    "), (510, b"\x55\xaa")];
    /// Bytes and their positions.
    type Bytes = [(usize, &'static [u8])];
    let cases: [(&str, &Bytes); 3] =
        [("hfsplus", &[(1024 + 104, id)]), ("hfs", &[(1024 + 116, id)]), ("hpfs", of_hpfs)];
    for (name, fields) in cases {
        let Some(found) = Image::new(name) else { continue };
        let mut bytes = found.bytes();
        for (at, field) in fields {
            bytes[*at..*at + field.len()].copy_from_slice(field);
        }
        fs::write(&image, bytes).unwrap();
        compare(name, &image, name);
    }
}

#[test]
fn identifiers_of_udf_and_iso_9660_are_those_of_blkid() {
    let tools = [Oracle::Program("blkid"), Oracle::Program("mkudffs"), Oracle::Program("xorriso")];
    if !require(&tools) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let path = image.to_str().unwrap();
    let blank = || fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    for uuid in ["0123456789abcdef", "89abcdef01234567"] {
        for size in ["512", "2048"] {
            blank();
            let options = ["-b", size, "-u", uuid, "--label=Disc one", path];
            call("mkudffs", options).unwrap();
            compare("udf", &image, uuid);
        }
    }
    // Other programs write other characters, also of 16 bits. The field is in each copy of the primary volume descriptor.
    let sixteen: Vec<u8> = "\u{e9}t\u{e9} 2026 LinuxUDF".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let sets: [(u8, &[u8]); 6] = [
        (8, b"0123abcd LinuxUDF"),
        (8, b"hello world, this is a set"),
        (8, b"12ABCDEF34 rest"),
        (8, b"1234567"),
        (8, b"\xe9\xe8\xe7 latin letters"),
        (16, &sixteen),
    ];
    for (bits, set) in sets {
        blank();
        call("mkudffs", ["-b", "512", "-u", "0123456789abcdef", path]).unwrap();
        let mut bytes = fs::read(&image).unwrap();
        for descriptor in bytes.chunks_exact_mut(512).filter(|sector| sector.starts_with(&[1, 0])) {
            let field = &mut descriptor[72..200];
            field.fill(0);
            field[0] = bits;
            field[1..=set.len()].copy_from_slice(set);
            field[127] = u8::try_from(set.len() + 1).unwrap();
        }
        fs::write(&image, bytes).unwrap();
        let (_, theirs) = by_blkid(&image);
        assert_eq!(by_probe("udf", &image).1, theirs, "{bits} {set:?}");
    }
    let disc = folder.path().join("tree");
    fs::create_dir(&disc).unwrap();
    for options in [&["-V", "ONE"][..], &["-V", "TWO", "-J"], &["-V", "A long name of a disc", "-J", "-R"]] {
        let _ = fs::remove_file(&image);
        let line =
            [&["-as", "mkisofs", "-quiet", "-o", path][..], options, &[disc.to_str().unwrap()]].concat();
        call("xorriso", line).unwrap();
        compare("iso9660", &image, &options.join(" "));
        // Without a time of change, the time of creation is used.
        let mut bytes = fs::read(&image).unwrap();
        bytes[0x8000 + 830..0x8000 + 846].fill(b'0');
        bytes[0x8000 + 846] = 0;
        fs::write(&image, bytes).unwrap();
        compare("iso9660", &image, "time of creation");
    }
}
