//! Changes of settings, with power failures.

use std::sync::Arc;

use obento::base::Timestamp;
use obento::block::{BlockDevice, MemDevice};
use obento::check::check;
use obento::driver::{CheckOptions, FormatOptions, RepairMode, TuneError, TuneOptions};
use obento::env::{FixedClock, FixedRandom, SystemClock};
use obento::tune::{TuneFailure, tune};
use obento::{Image, Options, Registry};
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::record::{Event, RecordDevice};

const LEN: usize = 48 << 20;

fn made(fs_type: &str) -> Vec<u8> {
    let registry = Registry::default();
    let device = MemDevice::new(vec![0; LEN]);
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let options = FormatOptions::new(fs_type, clock, Arc::new(FixedRandom(3)));
    let driver = registry.find(fs_type).unwrap();
    driver.format().unwrap().format(&device, &options).unwrap();
    bytes_of(&device)
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn open(device: Arc<dyn BlockDevice>) -> Image {
    Image::on_device("image".as_ref(), device, &Registry::default(), &Options::default().for_change())
        .unwrap()
}

fn options(label: &[u8]) -> TuneOptions {
    TuneOptions { label: Some(label.to_vec()), ..TuneOptions::new(Arc::new(SystemClock)) }
}

fn label(image: &Image) -> Vec<u8> {
    image.probe_all()[0].probe().unwrap().label.clone()
}

#[test]
fn a_power_failure_while_settings_change_leaves_the_old_or_the_new_ones() {
    for fs_type in ["ext4", "ext3", "ext2", "vfat", "exfat"] {
        let bytes = made(fs_type);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        tune(&open(device.clone()), None, &options(b"FIRST")).unwrap();
        let before = bytes_of(&*device);
        device.take_events();
        let mut wanted = options(b"OTHER");
        if fs_type.starts_with("ext") {
            wanted.uuid = Some([7; 16]);
            wanted.settings = vec![("reserved_percent".into(), "2.5".into())];
        }
        tune(&open(device.clone()), None, &wanted).unwrap();
        let mut events = device.take_events();
        events.push(Event::Flush);
        // A torn super block is found by its checksum, or not at all: all drivers write it in place.
        let limits = crash::Options { whole: 1024..2048, ..crash::Options::new(5) };
        let summary = crash::explore(&before, &events, &limits, &SeenStates::default(), &mut |state| {
            let image = open(state.device.clone());
            // Opening for change replays the journal.
            image
                .volume(None)
                .map_err(|error| error.to_string())?
                .close()
                .map_err(|error| error.to_string())?;
            let image = open(state.device.clone());
            let label = label(&image);
            if label != b"FIRST" && label != b"OTHER" {
                return Err(format!("label {}", String::from_utf8_lossy(&label)));
            }
            let options =
                CheckOptions { repair_mode: RepairMode::Nothing, ..CheckOptions::new(Arc::new(SystemClock)) };
            let mut findings = Vec::new();
            let report = check(&image, None, &options, &mut findings).map_err(|error| error.to_string())?;
            // The two copies of the label and of other settings may differ until a check.
            let damage = findings.iter().find(|finding| finding.severity == obento::driver::Severity::Damage);
            match damage {
                Some(damage) => Err(format!("{damage} of {}", report.found)),
                None => Ok(()),
            }
        });
        assert_eq!(summary.failures, [], "{fs_type}");
        assert!(summary.judged > 1, "{fs_type}: {summary:?}");
        assert_eq!(label(&open(device)), b"OTHER");
    }
}

#[test]
fn refused_settings_change_nothing() {
    let set = |name: &str, value: &str| TuneOptions {
        settings: vec![(name.into(), value.into())],
        ..options(b"NEW")
    };
    let cases = [
        ("ext4", options(b"01234567890123456")),
        ("ext4", set("reserved_percent", "50.1")),
        ("ext4", set("reserved_percent", "x")),
        ("ext4", set("features", "^dir_index")),
        ("ext4", set("features", "casefold")),
        ("ext4", set("mount_options", "acl,fast")),
        ("ext4", set("errors", "cry")),
        ("ext4", set("check_interval", "99999999999d")),
        ("ext4", set("colour", "red")),
        ("ext4", TuneOptions { serial: Some(1), ..options(b"NEW") }),
        ("vfat", options(b"TWELVE BYTES")),
        ("vfat", options(b"A*B")),
        ("vfat", set("errors", "continue")),
        ("vfat", TuneOptions { uuid: Some([1; 16]), ..options(b"NEW") }),
        ("exfat", options("zwölf zeichen".as_bytes())),
        ("exfat", TuneOptions { uuid: Some([1; 16]), ..options(b"NEW") }),
    ];
    for (fs_type, wanted) in cases {
        let bytes = made(fs_type);
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(bytes.clone()));
        let refused = tune(&open(device.clone()), None, &wanted);
        let is_refused = matches!(
            refused,
            Err(TuneFailure::Tune(TuneError::Refused { .. } | TuneError::Unavailable { .. }))
        );
        assert!(is_refused, "{fs_type}: {:?} {refused:?}", wanted.settings);
        assert!(bytes_of(&*device) == bytes, "{fs_type}: {:?}", wanted.settings);
    }
}

#[test]
fn setting_that_a_format_does_not_have_is_unavailable_in_each_format() {
    for fs_type in ["ext4", "vfat", "exfat"] {
        let wanted = TuneOptions { settings: vec![("colour".into(), "red".into())], ..options(b"NEW") };
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(made(fs_type)));
        let refused = tune(&open(device), None, &wanted);
        let is_unavailable = matches!(
            &refused,
            Err(TuneFailure::Tune(TuneError::Unavailable { setting, .. })) if setting == "colour"
        );
        assert!(is_unavailable, "{fs_type}: {refused:?}");
    }
}
