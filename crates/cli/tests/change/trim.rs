//! Discarding of free space.

use std::os::unix::fs::MetadataExt as _;

use crate::support::{Disk, text};

fn allocated(disk: &Disk) -> u64 {
    std::fs::metadata(disk.image()).unwrap().blocks() * 512
}

fn trims(disk: Option<Disk>) {
    let Some(disk) = disk else { return };
    let data: Vec<u8> = (0..6_000_000_u32).map(|at| (at % 250 + 1) as u8).collect();
    for name in ["disk.img:/kept", "disk.img:/gone"] {
        assert!(disk.obento_with(&["write", name], &data).status.success());
    }
    disk.quietly(&["rm disk.img:/gone"]);
    let before = allocated(&disk);
    let output = disk.obento(&["trim", "-v", "disk.img:/"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("disk.img: ") && said.ends_with(" bytes) trimmed\n"), "{said}");
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)));
    disk.fsck();
    assert!(allocated(&disk) + 5_500_000 < before, "{} of {before} bytes are left", allocated(&disk));
    assert!(disk.obento(&["cat", "disk.img:/kept"]).stdout == data);
    // The discarded space can be used again.
    assert!(disk.obento_with(&["write", "disk.img:/again"], &data).status.success());
    assert!(disk.obento(&["cat", "disk.img:/again"]).stdout == data);
}

#[test]
fn an_image_gives_free_blocks_back_and_keeps_its_files() {
    trims(Disk::new("24M", &[]));
    trims(Disk::on_tmpfs("24M"));
}

#[test]
fn volumes_of_every_shape_are_trimmed() {
    trims(Disk::new("24M", &["-b", "1024", "-O", "^has_journal,^extents,^64bit,^flex_bg"]));
    trims(Disk::new("64M", &["-O", "bigalloc", "-C", "16384"]));
}

#[test]
fn short_runs_are_left_where_a_minimum_is_said() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.check("trim -v -m 1G disk.img:/", 0, "disk.img: 0 bytes trimmed\n", "");
}
