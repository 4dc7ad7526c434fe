//! Damaged, incomplete and empty images: one message for one cause, with the next step.

use std::fs;
use std::path::Path;

use super::{check_in, obento};

fn succeeds(at: &Path, line: &str) -> String {
    let output = obento(at, &line.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

fn errors(at: &Path, line: &str) -> String {
    let output = obento(at, &line.split(' ').collect::<Vec<_>>());
    assert!(!output.status.success(), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

/// Inverts a byte of the file `name`.
fn spoil(at: &Path, name: &str, offsets: impl IntoIterator<Item = usize>) {
    let mut bytes = fs::read(at.join(name)).unwrap();
    offsets.into_iter().for_each(|offset| bytes[offset] ^= 0xff);
    fs::write(at.join(name), bytes).unwrap();
}

#[test]
fn a_damaged_partition_table_is_reported_with_the_command_that_repairs_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for line in ["part disk.img create gpt --size 8M", "part disk.img add", "mkfs -q disk.img@1"] {
        succeeds(at, line);
    }
    spoil(at, "disk.img", [512]);
    let help =
        "the backup at the end is used\n  help: run 'obento part disk.img repair-backup' to repair the GPT\n";
    for line in ["ls disk.img", "ls disk.img@1", "df disk.img", "part disk.img"] {
        let text = succeeds(at, line);
        assert!(text.ends_with(help) && text.matches("repair-backup").count() == 1, "{line}: {text}");
    }
    let info = obento(at, &["info", "disk.img"]);
    assert!(String::from_utf8_lossy(&info.stdout).contains("repair-backup"), "{info:?}");
    let repairing = succeeds(at, "part disk.img repair-backup");
    assert!(repairing.ends_with("the backup at the end is used\n"), "{repairing}");
    check_in(at, &["check", "-q", "disk.img"], 0, "", "");
}

#[test]
fn damaged_structures_share_one_note_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeeds(at, "mkfs -q -b 1024 disk.img 40M");
    // The checksums of the descriptors of five groups, which have 64 bytes each.
    spoil(at, "disk.img", (0..5).map(|group| 2048 + group * 64 + 0x1e));
    let text = succeeds(at, "ls disk.img");
    assert!(text.starts_with("obento: disk.img: note: 5 structures are damaged; the first is: "), "{text}");
    let help = "; the undamaged rest is shown\n  help: copy the files first: obento recover disk.img DIR; then 'obento \
                check -y disk.img' repairs all damage\n";
    assert!(text.ends_with(help) && text.lines().count() == 2, "{text}");
    let info = obento(at, &["info", "disk.img"]);
    assert_eq!(String::from_utf8_lossy(&info.stdout).matches("damaged").count(), 2, "{info:?}");
}

#[test]
fn a_damaged_root_and_a_truncated_image_are_reported_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeeds(at, "mkfs -q -b 1024 root.img 8M");
    let bytes = fs::read(at.join("root.img")).unwrap();
    let table = u32::from_le_bytes(bytes[2048 + 8..2048 + 12].try_into().unwrap()) as usize;
    fs::write(at.join("cut.img"), &bytes[..table * 1024]).unwrap();
    // The modification time of inode 2.
    spoil(at, "root.img", [table * 1024 + 256 + 0x10]);
    let text = errors(at, "ls root.img");
    assert!(
        text.ends_with("\n  help: 'obento recover' copies the readable files of a damaged volume\n"),
        "{text}"
    );
    let text = errors(at, "ls cut.img");
    assert!(text.contains("get a complete copy of the image"), "{text}");
}

#[test]
fn a_disk_without_a_file_system_is_described_alike_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for line in ["part gpt.img create gpt --size 8M", "part mbr.img create mbr --size 8M", "part mbr.img add"]
    {
        succeeds(at, line);
    }
    for line in ["ls gpt.img", "resize gpt.img 1G", "tune gpt.img -L x", "undelete gpt.img", "check gpt.img"]
    {
        assert_eq!(
            errors(at, line),
            "obento: cannot open 'gpt.img': the partition table has no partitions\n  help: add a partition: obento \
             part gpt.img add\n",
            "{line}"
        );
    }
    for line in ["ls mbr.img", "resize mbr.img 1G", "tune mbr.img -L x", "undelete mbr.img", "check mbr.img"]
    {
        let text = errors(at, line);
        assert!(
            text.starts_with("obento: cannot open 'mbr.img': no partition contains a supported"),
            "{line}: {text}"
        );
        assert!(
            text.ends_with("\n  help: create a file system with 'obento mkfs mbr.img@1'\n"),
            "{line}: {text}"
        );
    }
    let output = errors(at, "part mbr.img attributes 1 +required");
    assert!(output.ends_with("\n  help: the only attribute of an MBR is active\n"), "{output}");
}

#[test]
fn a_hint_about_a_volume_is_true_for_this_volume() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for line in
        ["mkfs -q -O journal_dev journal.img 4M", "mkfs -q -t ext2 e2.img 16M", "mkfs -q -t ext4 e4.img 16M"]
    {
        succeeds(at, line);
    }
    let text = errors(at, "ls journal.img");
    let help = "this is an external journal: open its volume, and name this file with --journal";
    assert!(text.ends_with(&format!("\n  help: {help}\n")), "{text}");
    for image in ["e2.img", "e4.img"] {
        let text = errors(at, &format!("resize {image} 100K"));
        assert!(text.ends_with("\n  help: use --minimum, which may shrink the volume further\n"), "{text}");
        succeeds(at, &format!("resize -q {image} --minimum"));
        let text = errors(at, &format!("resize {image} 100K"));
        assert!(!text.contains("help"), "{text}");
    }
    let output = obento(at, &["ls", "--mount-options", "streams=none", "e4.img"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        text,
        "obento: e4.img: note: the option streams has no effect: only NTFS has alternate data streams\n"
    );
}
