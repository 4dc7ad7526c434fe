//! Real images in every supported container, created by e2fsprogs, sgdisk, qemu-img and the compressors.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use obento::address::PartSelector;
use obento::copy::{CopyOptions, CopySource, Quiet};
use obento::diff::{DiffOptions, DiffSide};
use obento::driver::Notice;
use obento::export::ExportOptions;
use obento::image::ImageNotice;
use obento::{Image, OpenError, Options, Volume};
use obento_testkit::oracle::{Oracle, call, require};

const MIB: u64 = 1 << 20;

/// A folder with files of different sizes, links and names, and a file system of 1 KiB blocks that is created
/// from it.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        let tree = fixture.path("tree");
        fs::create_dir_all(tree.join("etc/deep")).unwrap();
        for size in [0, 1, 1000, 1024, 70_000, 300_000] {
            let bytes: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
            fs::write(tree.join(format!("etc/{size}")), bytes).unwrap();
        }
        std::os::unix::fs::symlink("etc/1000", tree.join("link")).unwrap();
        fs::hard_link(tree.join("etc/1000"), tree.join("etc/deep/again")).unwrap();
        File::create(tree.join("sparse")).unwrap().write_all_at(b"end", 3 * MIB).unwrap();
        let image = fixture.path("disk.img");
        File::create(&image).unwrap().set_len(20 * MIB).unwrap();
        let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-L", "fixture", "-d"];
        call("mke2fs", args.map(Path::new).into_iter().chain([&*tree, &*image])).unwrap();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a disk of 32 MiB with a GPT: the file system, then a partition with other bytes.
    fn disk(&self) -> PathBuf {
        let disk = self.path("parts.img");
        let file = File::create(&disk).unwrap();
        file.set_len(32 * MIB).unwrap();
        let sgdisk =
            ["--new=1:2048:+20M", "--change-name=1:root fs", "--new=2:0:+4M", "--change-name=2:data"];
        call("sgdisk", sgdisk.map(Path::new).into_iter().chain([&*disk])).unwrap();
        file.write_all_at(&fs::read(self.path("disk.img")).unwrap(), MIB).unwrap();
        disk
    }
}

fn open(image: &Path) -> Image {
    Image::open(image).unwrap()
}

/// Returns the whole tree as an archive. Equal archives mean equal trees.
fn archive(volume: &Volume) -> Vec<u8> {
    let mut problems = Quiet::default();
    let exported =
        obento::export::export(&volume.root(), Vec::new(), &ExportOptions::default(), &mut problems);
    assert_eq!(problems.0, []);
    exported.unwrap().0
}

#[test]
fn an_image_is_the_same_tree_in_every_container() {
    let programs = ["mke2fs", "sgdisk", "qemu-img", "img2simg", "gzip", "xz", "zstd"].map(Oracle::Program);
    if !require(&programs) {
        return;
    }
    let fixture = Fixture::new();
    let disk = fixture.disk();
    let expected = archive(&open(&fixture.path("disk.img")).volume(None).unwrap());
    let convert = |args: &[&str], name: &str| {
        let target = fixture.path(name);
        call(
            "qemu-img",
            ["convert", "-O", "qcow2"].iter().chain(args).map(Path::new).chain([&*disk, &*target]),
        )
        .unwrap();
        target
    };
    let mut images = vec![(disk.clone(), &[][..])];
    images.push((convert(&[], "plain.qcow2"), &["qcow2"]));
    images.push((convert(&["-c"], "packed.qcow2"), &["qcow2"]));
    let other = |format: &str, options: &str, name: &str| convert(&["-O", format, "-o", options], name);
    images.push((other("vpc", "subformat=fixed,force_size=on", "fixed.vhd"), &["vhd"]));
    images.push((other("vpc", "subformat=dynamic,force_size=on", "dynamic.vhd"), &["vhd"]));
    images.push((other("vhdx", "subformat=dynamic", "disk.vhdx"), &["vhdx"]));
    images.push((other("vmdk", "subformat=monolithicSparse", "sparse.vmdk"), &["vmdk"]));
    images.push((other("vmdk", "subformat=streamOptimized", "stream.vmdk"), &["vmdk"]));
    images.push((other("vdi", "static=off", "disk.vdi"), &["vdi"]));
    let simg = fixture.path("disk.simg");
    call("img2simg", [&*disk, &*simg]).unwrap();
    images.push((simg, &["android-sparse"]));
    call("zstd", [Path::new("-q"), &fixture.path("disk.vdi")]).unwrap();
    images.push((fixture.path("disk.vdi.zst"), &["zstd", "vdi"]));
    for (program, ending, layers) in
        [("gzip", "gz", &["gzip"][..]), ("xz", "xz", &["xz"]), ("zstd", "zst", &["zstd"])]
    {
        call(program, ["-k", "-q"].map(Path::new).into_iter().chain([&*disk])).unwrap();
        images.push((fixture.path(&format!("parts.img.{ending}")), layers));
    }
    call("gzip", [Path::new("-k"), &fixture.path("plain.qcow2")]).unwrap();
    images.push((fixture.path("plain.qcow2.gz"), &["gzip", "qcow2"]));
    for (path, layers) in images {
        let image = open(&path);
        assert_eq!(image.layers(), layers, "{}", path.display());
        assert_eq!((image.partitions().len(), image.notices()), (2, &[][..]), "{}", path.display());
        assert!(archive(&image.volume(None).unwrap()) == expected, "{} has another tree", path.display());
        for part in ["1", "fixture", "root fs", "name=root%20fs", "label=fixture", "+1M"] {
            let part = PartSelector::parse(part.as_bytes()).unwrap();
            assert!(image.volume(Some(&part)).is_ok(), "{} of {}", part, path.display());
        }
    }
}

#[test]
fn only_a_fixed_vhd_is_opened_for_change() {
    if !require(&["mke2fs", "sgdisk", "qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let disk = fixture.disk();
    let convert = |options: &str, name: &str| {
        let target = fixture.path(name);
        let args = ["convert", "-O", "vpc", "-o", options].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*disk, &*target])).unwrap();
        target
    };
    let fixed = convert("subformat=fixed,force_size=on", "fixed.vhd");
    let change = |path: &Path| Image::builder().for_change().open(path);
    let volume = change(&fixed).unwrap().volume(None).unwrap();
    volume.write("/etc/new", "changed in a VHD").unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_eq!(open(&fixed).layers(), ["vhd"]);
    let raw = fixture.path("again.img");
    let args = ["convert", "-f", "vpc", "-O", "raw"].map(Path::new);
    call("qemu-img", args.into_iter().chain([&*fixed, &*raw])).unwrap();
    assert_eq!(open(&raw).volume(None).unwrap().read("/etc/new").unwrap(), b"changed in a VHD");
    let dynamic = convert("subformat=dynamic,force_size=on", "dynamic.vhd");
    let before = fs::read(&dynamic).unwrap();
    assert!(matches!(change(&dynamic), Err(OpenError::Packed { layer: "vhd", .. })));
    assert!(fs::read(&dynamic).unwrap() == before);
}

#[test]
fn a_backing_file_is_opened_only_if_that_is_allowed() {
    if !require(&["mke2fs", "sgdisk", "qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let (disk, top) = (fixture.disk(), fixture.path("top.qcow2"));
    let args = ["create", "-f", "qcow2", "-F", "raw", "-b"];
    call("qemu-img", args.map(Path::new).into_iter().chain([&*disk, &*top])).unwrap();
    let refused = Image::open(&top);
    assert!(matches!(refused, Err(OpenError::Host(_))), "{refused:?}");
    let options = Options { allow_backing: true, ..Options::default() };
    assert!(Image::builder().options(options).open(&top).unwrap().volume(None).is_ok());
}

#[test]
fn a_lost_super_block_is_replaced_by_its_copy_with_a_notice() {
    if !require(&["mke2fs", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let expected = archive(&open(&fixture.path("disk.img")).volume(None).unwrap());
    let disk = fixture.disk();
    for (image, at) in [(fixture.path("disk.img"), 1024), (disk, MIB + 1024)] {
        let file = File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[0; 1024], at).unwrap();
        let volume = open(&image).volume(None).unwrap();
        assert!(archive(&volume) == expected, "{}", image.display());
        let notices = volume.info().notices;
        assert!(notices.contains(&Notice::BackupSuperBlock { block: 8193 }), "{notices:?}");
    }
}

#[test]
fn a_truncated_image_shows_its_existing_files() {
    if !require(&["mke2fs", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let disk = fixture.disk();
    File::options().write(true).open(&disk).unwrap().set_len(10 * MIB).unwrap();
    let image = open(&disk);
    assert!(
        image.notices().iter().any(|notice| matches!(notice, ImageNotice::Table(_))),
        "{:?}",
        image.notices()
    );
    let volume = image.volume(None).unwrap();
    assert!(volume.info().notices.iter().any(|notice| matches!(notice, Notice::Truncated { .. })));
    let found = obento::walk::Walk::new(volume.root()).filter(Result::is_ok).count();
    assert!(found > 3, "{found} entries");
}

#[test]
fn a_copy_equals_the_image_and_the_folder_it_was_made_from() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let fixture = Fixture::new();
    let volume = open(&fixture.path("disk.img")).volume(None).unwrap();
    let target = fixture.path("copy");
    let source = CopySource { node: volume.root(), path: b"/".to_vec(), prefix: Vec::new() };
    let mut problems = Quiet::default();
    let report = obento::copy::copy_out(&[source], &target, &CopyOptions::archive(), &mut problems).unwrap();
    assert_eq!((problems.0, report.written.lost.len()), (Vec::new(), 0));
    let image = DiffSide::Image { node: volume.root(), path: b"/".to_vec() };
    let differences = |other: &str, options: &DiffOptions| {
        let mut found = Vec::new();
        obento::diff::diff(&image, &DiffSide::Host(fixture.path(other)), options, &mut |difference| {
            found.push(String::from_utf8(difference.unwrap().path).unwrap());
            ControlFlow::Continue(())
        });
        found
    };
    assert_eq!(differences("copy", &DiffOptions::ALL), [""; 0]);
    // `mke2fs -d` stores whole seconds only.
    assert_eq!(differences("tree", &DiffOptions { times: false, ..DiffOptions::ALL }), ["lost+found"]);
}
