//! Recorded volumes for the crash explorer and the fault device.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::FileSystem;
use obento_env::Clock;
use obento_exfat::ExFatDriver;
use obento_ext4::Ext4Driver;
use obento_prov::{FixedWho, LogOptions, Recorded};
use obento_testkit::crash::campaign::Volume;
use obento_testkit::crash::volume::{CheckClosed, Subject};
use obento_testkit::model::StepClock;
use obento_testkit::oracle::{Oracle, call, program, run};
use obento_testkit::plan::{Bounds, Limits, catalogue};
use obento_testkit::{require, trials};

type Checked = std::result::Result<(), String>;

/// Opens a volume after a power failure, without a recorder.
pub type OpenInner = fn(Arc<dyn BlockDevice>, Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>>;

pub fn open_ext4(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    trials::open(&Ext4Driver, device, clock)
}

pub fn open_exfat(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    trials::repair_and_open(&ExFatDriver::default(), device, clock)
}

/// Records the changes of a volume for process 7.
pub fn record(inner: Arc<dyn FileSystem>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    let who = Arc::new(FixedWho(super::actor(7)));
    Recorded::open(inner, who, clock, LogOptions::default()).map(|fs| fs as Arc<dyn FileSystem>)
}

fn recorded_ext4(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    record(open_ext4(device, Arc::clone(&clock))?, clock)
}

fn recorded_exfat(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    record(open_exfat(device, Arc::clone(&clock))?, clock)
}

fn check_ext4(device: &Arc<dyn BlockDevice>, _: Option<&[u8]>) -> Checked {
    trials::check(&Ext4Driver, device)
}

/// Returns `checked`, or success if all findings contain one of `left`. The device may have failed while the recorder opened
/// a volume, which a failed change leaves as a power failure does. The tests of power failures accept no finding.
fn but(checked: Checked, left: &[&str]) -> Checked {
    match checked {
        Err(found) if found.split("; ").all(|one| left.iter().any(|part| one.contains(part))) => Ok(()),
        checked => checked,
    }
}

fn check_marked_ext4(device: &Arc<dyn BlockDevice>, bytes: Option<&[u8]>) -> Checked {
    but(check_ext4(device, bytes), &["the journal was aborted with error", "marked for replay", "to replay"])
}

fn check_marked_exfat(device: &Arc<dyn BlockDevice>, bytes: Option<&[u8]>) -> Checked {
    let left = ["the volume was not unmounted", "the chain is too long", "to no file"];
    but(check_exfat(device, bytes), &left)
}

fn check_exfat(device: &Arc<dyn BlockDevice>, _: Option<&[u8]>) -> Checked {
    trials::check(&ExFatDriver::default(), device)
}

fn e2fsck(device: &dyn BlockDevice) -> Checked {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("judged.img");
    let mut bytes = vec![0; usize::try_from(device.len()).expect("it is in memory")];
    device.read_at(0, &mut bytes).expect("memory can be read");
    std::fs::write(&image, bytes).expect("room");
    call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).map(drop).map_err(|error| error.to_string())
}

fn fsck_exfat(device: &dyn BlockDevice) -> Checked {
    trials::judge("fsck.exfat", device)
}

/// Creates an image of `kib` KiB with an empty log. It has the same bytes in every run.
fn made(kib: u64, open: OpenInner, make: impl FnOnce(&Path)) -> Arc<[u8]> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    File::create(&image).and_then(|file| file.set_len(kib << 10)).expect("room");
    make(&image);
    let device = Arc::new(MemDevice::new(std::fs::read(image).expect("the image exists")));
    let clock = Arc::new(StepClock::default());
    // The directory of the log changes the times of the root.
    trials::close(&*open(device.clone(), clock).expect("the volume opens"));
    device.snapshot().into()
}

/// Returns an empty ext4 volume whose changes are recorded, if the checkers are installed.
pub fn ext4() -> Option<Volume<'static>> {
    const UUID: &str = "6f62656e-746f-4000-8000-000000000001";
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return None;
    }
    let base = made(4 << 10, recorded_ext4, |image| {
        let mut mke2fs = program("mke2fs");
        mke2fs
            .env("E2FSPROGS_FAKE_TIME", "1000000000")
            .args(["-q", "-F", "-t", "ext4", "-U", UUID, "-b", "1024"]);
        mke2fs.args([
            "-E",
            &format!("hash_seed={UUID},lazy_itable_init=0"),
            "-O",
            "^resize_inode",
            "-J",
            "size=1",
        ]);
        run(mke2fs.arg(image)).expect("the options are compatible");
    });
    let mut subject = trials::repaired_subject(&recorded_ext4, &check_ext4, &e2fsck);
    subject.recovery_every = 100;
    Some(Volume {
        name: "recorded-ext4".into(),
        base,
        subject,
        // The checksum of the super block is in its second sector: see the tests of ext4.
        whole: 1024..2048,
        named: catalogue::all(),
        bounds: Bounds { len: 2, space: true, links: true, xattrs: true },
        limits: Limits::SMALL,
        left_out: FEW_INODES,
    })
}

/// Returns the volumes for failing devices.
pub fn for_faults() -> Vec<Volume<'static>> {
    fn with<'a>(volume: Volume<'a>, check: &'a CheckClosed<'a>) -> Volume<'a> {
        let Subject { open, second, data, .. } = volume.subject;
        let subject = Subject { open, check, second, second_every: 0, recovery_every: 0, data };
        Volume { subject, ..volume }
    }
    let ext4 = ext4().map(|volume| with(volume, &check_marked_ext4));
    let exfat = exfat().map(|volume| with(volume, &check_marked_exfat));
    [ext4, exfat].into_iter().flatten().collect()
}

/// Cases that need more inodes than the volume has.
const FEW_INODES: &[(&str, &str)] =
    &[("2324 files are created in a directory, listed, and removed", "there are fewer inodes")];

/// Returns an empty exFAT volume whose changes are recorded, if the checkers are installed.
pub fn exfat() -> Option<Volume<'static>> {
    if !require(&[Oracle::Program("mkfs.exfat"), Oracle::Program("fsck.exfat")]) {
        return None;
    }
    let base = made(3000, recorded_exfat, |image| {
        run(program("mkfs.exfat").args(["-c", "512", "-b", "4096"]).arg(image))
            .expect("the options are compatible");
    });
    let subject: Subject<'static> = trials::repaired_subject(&recorded_exfat, &check_exfat, &fsck_exfat);
    let bounds = Bounds { len: 2, space: false, links: false, xattrs: false };
    Some(trials::volume("recorded-exfat", base, subject, bounds))
}
