//! Quota limits: the results of calls are those on a mount by the kernel's ext4, which runs as a process (User Mode Linux),
//! because a kernel may lack the format of quota files.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use obento_testkit::oracle::{program, python, run};
use obento_testkit::quota::{OwnerKind, OwnerLimits, limits, set_limits};
use obento_testkit::second::{GuestType, has_linux, linux_with};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text, transports};

const FEATURES: &[&str] = &["-b", "4096", "-I", "256", "-O", "quota,project"];
/// With attributes whose values are in inodes.
const WITH_VALUES: &[&str] = &["-b", "4096", "-I", "256", "-O", "quota,project,ea_inode"];
const OPTIONS: &str = "usrquota,grpquota,prjquota";
const SCRIPT: &str = include_str!("limits.py");

/// Runs the script in the mounted root of `disk`.
fn python_in(disk: &Disk, what: &str) -> String {
    let script = disk.folder().join("limits.py");
    fs::write(&script, SCRIPT).unwrap();
    let mut command = python();
    let output = run(command.arg(&script).arg(what).current_dir(disk.at())).unwrap();
    text(&output.stdout)
}

#[test]
fn calls_near_a_limit_have_the_results_that_they_have_on_the_kernels_ext4() {
    compare(FEATURES, "use", 40);
}

#[test]
fn large_attributes_near_a_limit_have_the_results_that_they_have_on_the_kernels_ext4() {
    compare(WITH_VALUES, "values", 15);
}

/// Compares the results of the script, which are more than `least` lines, and the quota files afterwards with those of
/// the kernel's ext4.
fn compare(features: &[&str], what: &str, least: usize) {
    if !require(&[Oracle::Program("debugfs"), Oracle::Program("python3")]) || !has_linux() {
        return;
    }
    let Some(theirs) = Disk::new(features) else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("limits.py"), SCRIPT).unwrap();
    let guest = |what| {
        let script = format!("python3 $WORK/limits.py {what}");
        linux_with(GuestType::Ext4, &theirs.image(), OPTIONS, folder.path(), &script).unwrap()
    };
    guest("set");
    let start = fs::read(theirs.image()).unwrap();
    let expected = guest(what);
    assert!(expected.contains("EDQUOT") && expected.lines().count() > least, "{expected}");
    for transport in transports() {
        let Some(ours) = Disk::new(features) else { return };
        fs::write(ours.image(), &start).unwrap();
        ours.mount(&format!("rw,allow_other,{OPTIONS},{transport}"));
        let found = python_in(&ours, what);
        ours.umount();
        let differing: Vec<_> = expected.lines().zip(found.lines()).filter(|(a, b)| a != b).collect();
        assert!(differing.is_empty() && expected == found, "{transport}: {differing:#?}\n{found}");
        for (kind, id) in [
            (OwnerKind::User, 1001),
            (OwnerKind::User, 1004),
            (OwnerKind::User, 1005),
            (OwnerKind::Group, 1002),
            (OwnerKind::Project, 1003),
        ] {
            let (of_kernel, found) = (limits(&theirs.image(), kind, id), limits(&ours.image(), kind, id));
            assert_eq!(of_kernel.1, found.1, "{kind:?} {id}");
            let is_late = of_kernel.0.space_deadline != 0;
            assert_eq!(found.0.space_deadline != 0, is_late, "{kind:?} {id}");
            // Minutes may be between the two.
            let apart = of_kernel.0.space_deadline.abs_diff(found.0.space_deadline);
            assert!(apart < 3600, "{kind:?} {id}: {of_kernel:?} {found:?}");
        }
    }
}

/// Runs a line of the shell as a user in the root of the mounted disk. Returns whether it succeeded, and its messages.
fn as_user(disk: &Disk, uid: u32, line: &str) -> (bool, String) {
    let mut command = Command::new("sh");
    let output = command.args(["-c", line]).current_dir(disk.at()).uid(uid).gid(uid).output().unwrap();
    (output.status.success(), text(&output.stderr))
}

/// Creates a disk on which user 1001 has these limits, and may create files.
fn limited(new: &OwnerLimits) -> Option<Disk> {
    let disk = Disk::new(FEATURES)?;
    disk.mount("rw");
    fs::write(disk.path("f"), "x").unwrap();
    std::os::unix::fs::chown(disk.path("f"), Some(1001), Some(1001)).unwrap();
    fs::remove_file(disk.path("f")).unwrap();
    fs::set_permissions(disk.at(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    disk.umount();
    set_limits(&disk.image(), OwnerKind::User, 1001, new);
    Some(disk)
}

#[test]
fn write_itself_fails_at_a_limit_and_no_accepted_byte_is_lost() {
    if !require(&[Oracle::Root, Oracle::Program("debugfs")]) {
        return;
    }
    for transport in transports() {
        let new = OwnerLimits { hard_space: 1000, ..OwnerLimits::default() };
        let Some(disk) = limited(&new) else { return };
        disk.mount(&format!("rw,allow_other,usrquota,{transport}"));
        let (done, said) = as_user(&disk, 1001, "dd if=/dev/zero of=f bs=64k count=100");
        assert!(!done && said.contains("Disk quota exceeded"), "{said}");
        assert_eq!(fs::metadata(disk.path("f")).unwrap().len(), 1000 << 10);
        let (done, said) = as_user(&disk, 1001, "echo line >> g");
        assert!(!done && fs::read(disk.path("g")).unwrap().is_empty(), "{said}");
        // Another user, and root.
        assert!(as_user(&disk, 1002, "dd if=/dev/zero of=h bs=64k count=100 2> /dev/null").0);
        fs::write(disk.path("g"), vec![1; 10_000]).unwrap();
        disk.umount();
        assert_eq!(limits(&disk.image(), OwnerKind::User, 1001).1, [2, (1000 << 10) + 12_288]);
        // Without the option, no limit binds.
        disk.mount(&format!("rw,allow_other,{transport}"));
        let (done, said) = as_user(&disk, 1001, "echo line >> g");
        assert!(done, "{said}");
        disk.umount();
    }
}

#[test]
fn the_limits_are_enforced_after_the_server_was_killed_or_replaced() {
    if !require(&[Oracle::Root, Oracle::Program("debugfs")]) {
        return;
    }
    let Some(disk) = limited(&OwnerLimits { hard_space: 1000, ..OwnerLimits::default() }) else { return };
    // Requests through io_uring are tied to a process.
    disk.mount("rw,allow_other,usrquota,io_uring=off");
    assert!(as_user(&disk, 1001, "dd if=/dev/zero of=f bs=64k count=12 conv=fsync 2> /dev/null").0);
    disk.quietly(&["mount", "--upgrade", "mnt"]);
    let (done, said) = as_user(&disk, 1001, "dd if=/dev/zero of=g bs=64k count=12 conv=fsync");
    assert!(!done && said.contains("Disk quota exceeded"), "{said}");
    assert_eq!(fs::metadata(disk.path("g")).unwrap().len(), 232 << 10);
    disk.kill();
    disk.mount_after_kill_with("rw,allow_other,usrquota");
    let (done, said) = as_user(&disk, 1001, "echo line >> h");
    assert!(!done, "{said}");
    disk.umount();
    assert_eq!(limits(&disk.image(), OwnerKind::User, 1001).1[1], 1000 << 10);
}

#[test]
fn the_options_require_the_quota_files_and_the_old_ones_have_no_effect_beside_these() {
    let (Some(with), Some(users), Some(without)) =
        (Disk::new(FEATURES), Disk::new(&["-O", "quota"]), Disk::new(&[]))
    else {
        return;
    };
    let refused = |disk: &Disk, options: &str, why: &str| {
        let output = disk.obento(&["mount", "-o", options, "disk.img", "mnt"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why) && said.contains("help:"), "{said}");
    };
    refused(&without, "usrquota", "the volume does not have the feature quota");
    refused(&without, "usrjquota=aquota.user,jqfmt=vfsv0", "quota files of the old format are not supported");
    refused(&users, "prjquota", "the volume does not have the feature project");
    without.quietly(&["mkfs", "-q", "-t", "vfat", "stick.img", "16M"]);
    for options in ["usrquota", "usrjquota=aquota.user,jqfmt=vfsv0"] {
        let output = without.obento(&["mount", "-o", options, "stick.img", "mnt"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("vfat has no quotas"), "{said}");
    }
    let output = with.obento(&["mount", "-o", "grpjquota=aquota.group,jqfmt=vfsv1", "disk.img", "mnt"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("grpjquota=aquota.group has no effect"), "{said}");
    with.umount();
    with.mount("rw,quota,noquota");
    with.umount();
}

#[test]
fn the_hint_for_a_damaged_quota_file_is_to_repair_the_volume() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let Some(disk) = Disk::new(FEATURES) else { return };
    let found = run(program("debugfs").args(["-R", "bmap <3> 0"]).arg(disk.image())).unwrap();
    let block: usize = text(&found.stdout).trim().parse().unwrap();
    let mut bytes = fs::read(disk.image()).unwrap();
    bytes[block * 4096..][..4].fill(b'?');
    fs::write(disk.image(), bytes).unwrap();
    let output = disk.obento(&["mount", "-o", "rw", "disk.img", "mnt"]);
    let said = text(&output.stderr);
    assert!(said.contains("help: run 'obento check -y' to repair the volume\n"), "{said}");
    assert!(!said.contains("copy of the super block"), "{said}");
    disk.obento(&["check", "-y", "disk.img"]);
}
