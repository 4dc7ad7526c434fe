//! Programs that judge file systems: pjdfstest, fsx, fio, stress-ng. `cargo xtask stress` installs and runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// What of pjdfstest applies to ext4 on Linux, and users to be.
const PJDFSTEST: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.01\nallow_remount = false\n[dummy_auth]\n\
    entries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"], [\"daemon\", \"daemon\"]]\n";

/// All that a mapping, a hole and a copy can be.
const FSX: &str = "[weights]\ntruncate = 1\ninvalidate = 1\nfsync = 1\nfdatasync = 1\npunch_hole = 1\n\
    copy_file_range = 1\nposix_fallocate = 1\n";

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn pjdfstest_finds_nothing() {
    let needed = [Oracle::Root, Oracle::Program("pjdfstest")];
    let Some(disk) = Some(()).filter(|()| require(&needed)).and_then(|()| Disk::mounted("rw,allow_other"))
    else {
        return;
    };
    fs::set_permissions(disk.at(), PermissionsExt::from_mode(0o777)).unwrap();
    let config = disk.folder().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let output = run(program("pjdfstest").arg("-c").arg(config).arg("-p").arg(disk.at())).unwrap();
    let said = text(&output.stdout);
    println!("{}", said.lines().last().unwrap_or_default());
    assert!(said.contains("Summary: 0 failed"), "{said}");
    disk.umount();
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn fsx_finds_nothing_under_eight_seeds() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("fsx")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    let config = disk.folder().join("fsx.toml");
    fs::write(&config, FSX).unwrap();
    for seed in 1..=8 {
        let mut fsx = program("fsx");
        fsx.args(["-q", "-N", "100000", "-S", &seed.to_string(), "-f"])
            .arg(&config)
            .arg("-P")
            .arg(disk.folder());
        run(fsx.arg(disk.path(&format!("f{seed}")))).unwrap();
    }
    disk.umount();
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn fio_reads_what_it_wrote() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("fio")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    for (pattern, engine) in [("randwrite", "psync"), ("randrw", "psync"), ("randrw", "mmap")] {
        let mut fio = program("fio");
        fio.current_dir(disk.at()).args([
            "--name=v",
            "--size=32M",
            "--bs=4k",
            "--verify=crc32c",
            "--end_fsync=1",
        ]);
        run(fio.args([format!("--rw={pattern}"), format!("--ioengine={engine}")])).unwrap();
    }
    disk.umount();
}

#[test]
#[ignore = "a campaign: cargo xtask stress"]
fn stress_ng_meets_no_error_for_two_minutes() {
    let Some(disk) =
        Some(()).filter(|()| require(&[Oracle::Program("stress-ng")])).and_then(|()| Disk::mounted("rw"))
    else {
        return;
    };
    let stressors = "hdd dentry dir dirdeep rename link symlink fallocate seek xattr chmod chown utime filename getdent \
        iomix readahead flock lockf locka";
    let mut stress = program("stress-ng");
    stress.arg("--temp-path").arg(disk.at()).args(["--timeout", "120", "--hdd-bytes", "32m"]);
    stress.args(["--fallocate-bytes", "32m", "--iomix-bytes", "16m", "--readahead-bytes", "16m"]);
    stress.args(stressors.split_whitespace().flat_map(|name| [format!("--{name}"), "1".into()]));
    run(&mut stress).unwrap();
    disk.umount();
}
