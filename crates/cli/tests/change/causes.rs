//! The cause and the hint of a message are true.

use crate::support::{Disk, text};

/// Runs a line that fails, and returns its messages.
#[track_caller]
fn fails(disk: &Disk, line: &str) -> String {
    let output = disk.obento(&line.split(' ').collect::<Vec<_>>());
    assert!(!output.status.success(), "{line}");
    text(&output.stderr)
}

#[test]
fn a_flag_that_forbids_a_link_is_the_hint() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["touch disk.img:/a disk.img:/b", "chattr +i disk.img:/a", "mkdir disk.img:/d"]);
    disk.check(
        "ln disk.img:/a disk.img:/c",
        1,
        "",
        "obento: cannot create hard link 'disk.img:/c' to 'disk.img:/a': operation not permitted\n  \
         help: the file or its directory may be immutable or append-only: 'obento lsattr -d disk.img:/a \
         disk.img:/' shows the flags, and 'obento chattr -ia' removes them from the file or the directory\n",
    );
    disk.check(
        "ln disk.img:/d disk.img:/c",
        1,
        "",
        "obento: cannot create hard link 'disk.img:/c' to 'disk.img:/d': operation not permitted\n  \
         help: a directory cannot have several names; use -s to create a symbolic link\n",
    );
    disk.quietly(&["chattr -i disk.img:/a"]);
}

#[test]
fn an_exchange_with_an_own_directory_and_a_removal_of_the_root_name_the_cause() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["mkdir disk.img:/d", "touch disk.img:/d/f"]);
    disk.check(
        "mv --exchange disk.img:/d disk.img:/d/f",
        1,
        "",
        "obento: cannot exchange 'disk.img:/d' and 'disk.img:/d/f': one path contains the other\n",
    );
    disk.check(
        "rm -d disk.img:/",
        1,
        "",
        "obento: cannot remove 'disk.img:/': this is the root directory of the volume\n",
    );
}

#[test]
fn an_invalid_entry_or_name_is_explained_for_its_command() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["touch disk.img:/a"]);
    disk.check(
        "setfacl -x u:1:r disk.img:/a",
        2,
        "",
        "obento: invalid ACL entry 'u:1:r': an entry to remove has no permissions\n  \
         help: write u:USER, g:GROUP or m; the prefix d: selects the default ACL\n",
    );
    disk.check(
        "setfattr -n user. -v y disk.img:/a",
        1,
        "",
        "obento: cannot set attribute 'user.' of 'disk.img:/a': invalid argument\n  \
         help: a name follows the full stop, such as user.origin\n",
    );
}

#[test]
fn a_selected_super_block_is_not_reported_as_damage() {
    let Some(disk) = Disk::new("16M", &["-b", "1024"]) else { return };
    disk.check(
        "ls --superblock 8193 disk.img:/",
        0,
        "lost+found\n",
        "obento: disk.img: note: the super block at block 8193 is used, as requested\n",
    );
}

#[test]
fn servers_and_lists_of_bad_blocks_are_named() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    let error = fails(&disk, "mkfs -t nfs new.img 8M");
    assert!(error.contains("'nfs': this type is a server, which obento does not create\n"), "{error}");
    std::fs::write(disk.folder().join("list"), "5\nx\n").unwrap();
    let error = fails(&disk, "mkfs.fat -C -l list new.img 8192");
    assert!(error.contains("cannot read the bad blocks in 'list': line 2 is not a number\n"), "{error}");
    let error = fails(&disk, "undelete disk.img none*");
    assert!(error.contains("note: no deleted files were found\n"), "{error}");
    let error = fails(&disk, &format!("prov {}", disk.folder().display()));
    assert!(error.contains("': obento has mounted no volume at this directory\n"), "{error}");
}
