use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::address::{FileSelector, PartSelector};
use crate::check::check;
use crate::text::human_size;
use crate::toy::ToyDriver;
use obento_block::MemDevice;
use obento_driver::{
    Check, CheckObserver, CheckReport, Driver, FileSystem, Format, FormatOptions, OpenOptions, Probe,
};
use obento_env::{SystemClock, SystemRandom};
use obento_ext4::Ext4Driver;
use obento_testkit::counting::Counting;
use obento_vfs::{Caller, Symlinks};

const MIB: usize = 1 << 20;

fn registry() -> Registry {
    Registry::empty().with(ToyDriver)
}

fn open_with(bytes: Vec<u8>, options: &Options) -> Result<Image, OpenError> {
    Image::on_device("disk.img".as_ref(), Arc::new(MemDevice::read_only(bytes)), &registry(), options)
}

fn open(bytes: Vec<u8>) -> Image {
    open_with(bytes, &Options::default()).unwrap()
}

/// Returns a toy volume with this label.
fn toy(label: &str) -> Vec<u8> {
    let mut bytes = [b"toy:", label.as_bytes()].concat();
    bytes.resize(64 << 10, 0);
    bytes
}

/// Returns a disk with a GPT and these partitions of 1 MiB each, given by name and first bytes.
fn disk(partitions: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; (partitions.len() + 2) * MIB];
    let sectors = u32::try_from(bytes.len() / 512 - 1).unwrap();
    let mut cursor = std::io::Cursor::new(&mut bytes);
    ::gpt::mbr::ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut cursor).unwrap();
    let config = ::gpt::GptConfig::new().writable(true);
    let mut gpt = config.create_from_device(std::io::Cursor::new(bytes), None).unwrap();
    for (name, _) in partitions {
        gpt.add_partition(name, MIB as u64, ::gpt::partition_types::LINUX_FS, 0, None).unwrap();
    }
    let starts: Vec<u64> = gpt.partitions().values().map(|p| p.first_lba * 512).collect();
    let mut bytes = gpt.write().unwrap().into_inner();
    for (start, (_, content)) in starts.into_iter().zip(partitions) {
        let start = usize::try_from(start).unwrap();
        bytes[start..start + content.len()].copy_from_slice(content);
    }
    bytes
}

fn label(image: &Image, part: Option<&str>) -> Result<String, OpenError> {
    let part = part.map(|part| PartSelector::parse(part.as_bytes()).unwrap());
    image.volume(part.as_ref()).map(|volume| String::from_utf8(volume.info().probe.label).unwrap())
}

#[test]
fn a_file_system_that_fills_the_image_or_is_its_only_one_needs_no_name() {
    assert_eq!(label(&open(toy("bare")), None).unwrap(), "bare");
    let image = open(disk(&[("efi", b"MZ"), ("root", &toy("only"))]));
    assert_eq!((image.partitions().len(), label(&image, None).unwrap()), (2, "only".to_string()));
}

#[test]
fn one_of_several_file_systems_must_be_named_and_the_error_lists_them() {
    let image = open(disk(&[("one", &toy("A")), ("two", &toy("B")), ("swap", b"x\0y")]));
    let text = label(&image, None).unwrap_err().to_string();
    for part in ["disk.img@1", "disk.img@2", "\"one\"", "toy labelled \"A\"", "1 MiB", "Linux filesystem"] {
        assert!(text.contains(part), "{part} is missing from: {text}");
    }
    for (part, expected) in
        [("1", "A"), ("2", "B"), ("name=two", "B"), ("label=A", "A"), ("two", "B"), ("B", "B")]
    {
        assert_eq!(label(&image, Some(part)).unwrap(), expected, "{part}");
    }
    let uuid = image.partitions()[1].uuid.clone();
    assert_eq!(label(&image, Some(&uuid)).unwrap(), "B");
    assert_eq!(label(&image, Some(&format!("uuid={}", uuid.to_uppercase()))).unwrap(), "B");
    let offset = image.partitions()[1].start;
    assert_eq!(label(&image, Some(&format!("+{offset}"))).unwrap(), "B");
}

#[test]
fn a_missing_ambiguous_or_unrecognised_partition_is_reported() {
    let image = open(disk(&[("same", &toy("A")), ("same", &toy("B")), ("data", b"LUKS\xba\xbe")]));
    let missing = label(&image, Some("9")).unwrap_err();
    assert!(matches!(missing, OpenError::NoSuchPart { .. }) && missing.to_string().contains("disk.img@2"));
    let twice = label(&image, Some("same")).unwrap_err();
    assert!(matches!(&twice, OpenError::AmbiguousPart { list, .. } if list.len() == 2), "{twice}");
    let luks = label(&image, Some("3")).unwrap_err();
    let has_advice =
        matches!(&luks, OpenError::NoFileSystem { looks, .. } if looks.advice.contains("cryptsetup"));
    assert!(has_advice && luks.to_string().contains("LUKS"), "{luks}");
    assert!(label(&image, Some("+99999999")).is_err());
    assert!(
        label(&open(toy("bare")), Some("1")).unwrap_err().to_string().contains("no valid partition table")
    );
}

#[test]
fn a_file_that_is_not_an_image_is_reported_by_its_appearance() {
    let text = |bytes: Vec<u8>| open(bytes).volume(None).unwrap_err().to_string();
    assert!(text(b"\x7fELF\x02\x01".to_vec()).contains("ELF program"));
    assert!(text(vec![0; 5000]).contains("zeros"));
    assert!(text(disk(&[("a", b"hsqs"), ("b", b"XFSB")])).contains("XFS"));
    assert!(matches!(open_with(Vec::new(), &Options::default()), Err(OpenError::Empty { .. })));
}

#[test]
fn a_missing_and_an_unreadable_image_are_distinguished() {
    let text = |path: &str| Image::builder().registry(registry()).open(path).unwrap_err().to_string();
    assert!(text("/nowhere/disk.img").contains("cannot open '/nowhere/disk.img': no such file"));
    assert!(text("/").contains("directory"));
}

#[test]
fn a_type_that_is_forced_is_the_one_that_opens() {
    let force = |name: &str| Options { fs_type: Some(name.into()), ..Options::default() };
    assert!(open_with(toy("x"), &force("toy")).unwrap().volume(None).is_ok());
    let unknown = open_with(toy("x"), &force("xfs")).unwrap_err();
    assert_eq!(unknown, OpenError::UnknownType { name: "xfs".into(), known: vec!["toy"] });
    let wrong = open_with(vec![1; 4096], &force("toy")).unwrap().volume(None).unwrap_err();
    assert!(matches!(wrong, OpenError::Volume { fs_type: "toy", .. }));
}

#[test]
fn a_file_system_on_the_whole_image_and_one_in_a_partition_are_ambiguous_until_one_is_named() {
    let mut bytes = disk(&[("root", &toy("new"))]);
    bytes[..4].copy_from_slice(b"toy:");
    let error = label(&open(bytes.clone()), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open 'disk.img': the whole image and a partition have the signature of toy"
    );
    let changing = open_with(bytes.clone(), &Options::default().for_change()).unwrap();
    assert!(matches!(changing.volume(None), Err(OpenError::Ambiguous { .. })));
    assert_eq!(label(&open(bytes.clone()), Some("1")).unwrap(), "new");
    assert_eq!(label(&open(bytes), Some("+0")).unwrap(), "");
}

#[test]
fn a_file_system_counts_if_no_partition_of_an_old_table_holds_one() {
    let mut bytes = disk(&[("root", b"")]);
    bytes[..8].copy_from_slice(b"toy:live");
    assert_eq!(label(&open(bytes), None).unwrap(), "live");
}

#[test]
fn a_gpt_without_a_protective_mbr_is_ignored() {
    let mut bytes = disk(&[("root", &toy("stale"))]);
    bytes[..512].fill(0);
    let image = open(bytes.clone());
    assert!(image.table().is_none() && image.volume(None).is_err());
    assert!(image.notices().contains(&ImageNotice::IgnoredGpt));
    bytes[..8].copy_from_slice(b"toy:live");
    let image = open(bytes);
    assert_eq!((label(&image, None).unwrap(), image.notices()), ("live".to_string(), &[][..]));
}

#[test]
fn an_mbr_with_large_sectors_is_recognised_by_the_contents_of_its_partitions() {
    for size in [1024, 2048, 4096] {
        let mut bytes = vec![0; 2 * MIB];
        bytes[510..512].copy_from_slice(b"\x55\xaa");
        bytes[446 + 4] = 0x83;
        bytes[446 + 8] = 100;
        bytes[446 + 12] = 10;
        bytes[100 * size..][..8].copy_from_slice(b"toy:four");
        let image = open(bytes);
        assert_eq!(label(&image, None).unwrap(), "four");
        assert_eq!(usize::try_from(image.table().unwrap().sector_size), Ok(size));
    }
}

#[test]
fn an_image_cut_short_opens_with_a_notice() {
    let mut bytes = disk(&[("a", &toy("A")), ("b", &toy("B"))]);
    bytes.truncate(MIB);
    let image = open(bytes);
    assert_eq!(label(&image, Some("1")).unwrap(), "A");
    assert!(image.notices().iter().any(|notice| notice.to_string().contains("is truncated to")));
    let gone = image.probe_all();
    assert!(matches!(gone[1].holds, PartitionContents::Unreadable(_)), "{gone:?}");
}

#[test]
fn a_compressed_image_is_unpacked_layer_by_layer() {
    use std::io::Write;
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let once = gzip(&disk(&[("root", &toy("packed"))]));
    let twice = gzip(&once);
    let image = open(twice.clone());
    assert_eq!((image.layers(), label(&image, None).unwrap()), (&["gzip", "gzip"][..], "packed".to_string()));
    let five = (0..3).fold(twice, |bytes, _| gzip(&bytes));
    assert!(matches!(open_with(five, &Options::default()), Err(OpenError::Nested { .. })));
    let cut = open(once[..once.len() / 2].to_vec());
    assert!(cut.notices().iter().any(|notice| notice.to_string().contains("gzip")), "{:?}", cut.notices());
    assert_eq!(human_size(image.device().len()), "3 MiB");
}

fn tmpfs_image(options: &Options) -> Result<Image, OpenError> {
    let device = Arc::new(MemDevice::new(disk(&[("one", &toy("one")), ("two", &toy("two"))])));
    Image::on_device("disk.img".as_ref(), device, &Registry::empty().with(ChangingDriver), options)
}

/// A driver for toy volumes that can be changed. It reads only the label from the device.
struct ChangingDriver;

impl obento_driver::Driver for ChangingDriver {
    fn names(&self) -> &'static [&'static str] {
        &["changing"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> obento_base::Result<Option<obento_driver::Probe>> {
        ToyDriver.probe(device)
    }

    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &obento_driver::OpenOptions,
    ) -> obento_base::Result<Arc<dyn obento_driver::FileSystem>> {
        match options.access {
            Access::ReadOnly => ToyDriver.open(device, options),
            Access::ReadWrite => {
                Ok(Arc::new(obento_tmpfs::Tmpfs::new(obento_tmpfs::Options::new(options.clock.clone()))))
            }
        }
    }
}

fn part(text: &str) -> Option<PartSelector> {
    Some(PartSelector::parse(text.as_bytes()).unwrap())
}

#[test]
fn a_volume_open_for_change_is_returned_again_for_any_name_and_its_bytes_to_no_other_caller() {
    let image = tmpfs_image(&Options::default().for_change()).unwrap();
    let one = image.volume(part("1").as_ref()).unwrap();
    let again = image.volume(part("one").as_ref()).unwrap();
    assert!(one.is_writable() && one.root() == again.root());
    assert_eq!(image.volume_to_read(part("1").as_ref()).unwrap().root(), one.root());
    let inside = image.volume(part(&format!("+{}", MIB + 4096)).as_ref());
    assert!(inside.is_err(), "bytes of a changed volume were opened again");
    one.close().unwrap();
    assert!(!again.is_writable());
    assert!(image.volume(part("1").as_ref()).unwrap().is_writable(), "a closed volume can be opened again");
}

#[test]
fn a_volume_that_is_open_for_reading_is_not_opened_for_change_beside_it() {
    let image = tmpfs_image(&Options::default().for_change()).unwrap();
    let reading = image.volume_to_read(part("1").as_ref()).unwrap();
    assert!(!reading.is_writable());
    let error = image.volume(part("1").as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open 'disk.img@1': this process has the image open already, and an image that is changed can be open only once"
    );
    assert!(image.volume(part("2").as_ref()).unwrap().is_writable());
    drop(reading);
    assert!(image.volume(part("1").as_ref()).unwrap().is_writable());
}

#[test]
fn an_image_in_a_container_is_not_opened_for_change_and_the_error_names_the_format() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &toy("packed")).unwrap();
    let error = open_with(encoder.finish().unwrap(), &Options::default().for_change()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot change 'disk.img': obento reads the format gzip, but does not write it"
    );
}

/// A driver whose volumes have a file as their root. It keeps the volumes that it opens.
#[derive(Clone, Default)]
struct RootlessDriver(Arc<Mutex<Vec<Arc<Counting>>>>);

impl obento_driver::Driver for RootlessDriver {
    fn names(&self) -> &'static [&'static str] {
        &["rootless"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> obento_base::Result<Option<obento_driver::Probe>> {
        ToyDriver.probe(device)
    }

    fn open(
        &self,
        _: Arc<dyn BlockDevice>,
        options: &obento_driver::OpenOptions,
    ) -> obento_base::Result<Arc<dyn obento_driver::FileSystem>> {
        let volume = Arc::new(obento_tmpfs::Tmpfs::new(obento_tmpfs::Options::new(options.clock.clone())));
        let inside = Volume::new(volume.clone());
        inside.write("/file", "").unwrap();
        let file = inside.vfs().resolve(&inside.root(), b"/file", Symlinks::Keep, &Caller::Owner)?.ino();
        let rootless = Counting::with_root(volume, file);
        self.0.lock().unwrap().push(rootless.clone());
        Ok(rootless)
    }
}

#[test]
fn a_volume_whose_root_is_not_a_directory_can_be_opened_for_reading_only() {
    let driver = RootlessDriver::default();
    let open = |options: &Options| {
        let device = Arc::new(MemDevice::new(toy("rootless")));
        let registry = Registry::empty().with(driver.clone());
        Image::on_device("disk.img".as_ref(), device, &registry, options).unwrap().volume(None)
    };
    let error = open(&Options::default().for_change()).unwrap_err().to_string();
    assert!(error.contains("is not a directory") && error.contains("the root (inode "), "{error}");
    assert!(driver.0.lock().unwrap().last().unwrap().take().contains(&"close"), "the volume stays in use");
    let volume = open(&Options::default()).unwrap();
    let root = Err(obento_base::Corrupt::RootKind { ino: volume.root().ino() }.into());
    assert_eq!(volume.vfs().expect_root(), root);
    for path in ["/", "/name", "/name/x"] {
        let found = volume.resolve(&FileSelector::Path(path.as_bytes().to_vec()), Symlinks::Keep);
        assert_eq!(found.map(drop), root, "{path}");
    }
}

/// ext4, with the numbers of probes that recognised a volume and of calls that got the result of a probe.
#[derive(Clone, Default)]
struct CountingDriver {
    probes: Arc<AtomicU32>,
    results: Arc<AtomicU32>,
}

impl CountingDriver {
    fn note(&self, probe: Option<&Probe>) {
        self.results.fetch_add(probe.is_some().into(), Ordering::Relaxed);
    }
}

impl Driver for CountingDriver {
    fn names(&self) -> &'static [&'static str] {
        Ext4Driver.names()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn probe(&self, device: &dyn BlockDevice) -> obento_base::Result<Option<Probe>> {
        let probe = Ext4Driver.probe(device)?;
        self.probes.fetch_add(probe.is_some().into(), Ordering::Relaxed);
        Ok(probe)
    }

    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> obento_base::Result<Arc<dyn FileSystem>> {
        self.note(options.probe.as_ref());
        Ext4Driver.open(device, options)
    }

    obento_driver::capabilities!(check: Check);
}

impl Check for CountingDriver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> obento_base::Result<CheckReport> {
        self.note(options.probe.as_ref());
        Check::check(&Ext4Driver, device, options, observer)
    }
}

fn format_ext4<D: BlockDevice + ?Sized + 'static>(device: &Arc<D>, range: Range<u64>) {
    let options = FormatOptions::new("ext4", Arc::new(SystemClock), Arc::new(SystemRandom));
    Format::format(&Ext4Driver, &Slice::new(device.clone(), range).unwrap(), &options).unwrap();
}

#[test]
fn a_command_probes_a_volume_once_and_passes_the_result_to_the_driver() {
    let with_table = disk(&[("boot", b"MZ"), ("root", b"")]);
    let root = open(with_table.clone()).partitions()[1].range();
    for (bytes, range) in [(vec![0; 16 * MIB], 0..16 << 20), (with_table, root)] {
        let (device, start) = (Arc::new(MemDevice::new(bytes)), range.start);
        format_ext4(&device, range);
        let driver = CountingDriver::default();
        let registry = Registry::empty().with(driver.clone());
        let open = |options: Options| {
            Image::on_device("disk.img".as_ref(), device.clone(), &registry, &options).unwrap()
        };
        let counts = || [&driver.probes, &driver.results].map(|count| count.swap(0, Ordering::Relaxed));

        let volume = open(Options::default().for_change()).volume(None).unwrap();
        volume.write("/file", "contents").unwrap();
        assert_eq!(counts(), [1, 1], "for a change, at {start}");
        volume.close().unwrap();

        let volume = open(Options::default()).volume(None).unwrap();
        assert_eq!(volume.read("/file").unwrap(), b"contents");
        assert_eq!(counts(), [1, 1], "to read, at {start}");

        let image = open(Options::default());
        image.volume_bytes(None).unwrap();
        let report = check(&image, None, &CheckOptions::new(Arc::new(SystemClock)), &mut Vec::new()).unwrap();
        assert!(report.is_clean());
        let [probes, results] = counts();
        assert!(probes == 1 && results >= 1, "to check, at {start}: {probes} probes, {results} results");
    }
}

/// Returns a disk of 16 MiB with an MBR, and the range of its partition.
fn disk_with_mbr() -> (Vec<u8>, Range<u64>) {
    let mut bytes = vec![0; 16 * MIB];
    bytes[510..512].copy_from_slice(b"\x55\xaa");
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..][..8].copy_from_slice(&[0, 8, 0, 0, 0, 0x70, 0, 0]);
    (bytes, 1 << 20..15 << 20)
}

#[test]
fn a_volume_in_an_mbr_is_probed_once_even_for_a_change() {
    let (bytes, range) = disk_with_mbr();
    let device = Arc::new(MemDevice::new(bytes));
    format_ext4(&device, range);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), device.snapshot()).unwrap();
    let driver = CountingDriver::default();
    let image = Image::builder().registry(Registry::empty().with(driver.clone())).for_change();
    let image = image.open(path.path()).unwrap();
    let probes = || driver.probes.swap(0, Ordering::Relaxed);
    for round in 0..2 {
        let volume = image.volume(None).unwrap();
        assert_eq!((probes(), volume.info().notices), (1, Vec::new()), "round {round}");
        volume.write("/file", "contents").unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn a_volume_that_the_caller_creates_after_opening_the_image_is_found() {
    let (bytes, range) = disk_with_mbr();
    let device = Arc::new(MemDevice::new(bytes));
    let options = Options::default().for_change();
    let image =
        Image::on_device("disk.img".as_ref(), device.clone(), &Registry::default(), &options).unwrap();
    format_ext4(&device, range);
    assert!(image.volume(None).is_ok(), "on the device of the caller");

    let (bytes, range) = disk_with_mbr();
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), bytes).unwrap();
    let image = Image::builder().for_change().open(path.path()).unwrap();
    format_ext4(image.device(), range);
    assert!(image.volume(None).is_ok(), "on the device of the image");
}

#[test]
fn a_volume_is_opened_as_it_is_after_the_last_change_of_it() {
    let disk = Arc::new(MemDevice::new(vec![0; 16 * MIB]));
    format_ext4(&disk, 0..16 << 20);
    let options = Options::default().for_change();
    let image = Image::on_device("disk.img".as_ref(), disk, &Registry::default(), &options).unwrap();
    for round in 0..3 {
        let volume = image.volume(None).unwrap();
        assert_eq!(volume.info().notices, [], "the super block of round {round} is that of the last one");
        volume.write("/file", round.to_string()).unwrap();
        volume.close().unwrap();
        drop(volume);
        assert_eq!(image.volume_to_read(None).unwrap().info().state, "clean");
    }
}
