//! Volumes that are built from a tree contain that tree, for every type and every kind of source.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::Registry;
use obento::build::{BuildFailure, BuildSettings, BuildSource, Input, Owner, build, build_verified};
use obento::copy::Quiet;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Build, BuildError, BuildOptions, BuildPlan, Check, Driver, FileSystem, Format, FormatError,
    Formatted, FreeSpace, NodeId, OpenOptions, Probe, Tree,
};
use obento_env::NO_CLOCK;
use obento_ext4::Ext4Driver;
use obento_testkit::host_snapshot;
use obento_testkit::oracle::{Oracle, call, require};
use obento_testkit::snapshot::{Object, Snapshot, Times};
use obento_testkit::tree::{self, TreeSpec};
use obento_vfs::Vfs;
use tempfile::TempDir;

const SPEC: TreeSpec =
    TreeSpec { files: 130, wide: 1500, sparse_len: 20 << 20, xattr_len: 900, root: true, raw_names: true };

/// A tree in a folder.
struct Fixture {
    folder: TempDir,
    tree: Snapshot,
}

impl Fixture {
    fn new() -> Self {
        Self::without(&[])
    }

    /// Creates the tree without some files.
    fn without(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tree");
        fs::create_dir(&root).unwrap();
        tree::write(&root, &TreeSpec { root: rustix::process::geteuid().is_root(), ..SPEC }).unwrap();
        names.iter().for_each(|name| fs::remove_file(root.join(name)).unwrap());
        let tree = comparable(&host_snapshot::read(&root).unwrap());
        Self { folder, tree }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Panics unless the image contains the tree and e2fsck finds nothing. Removes the image afterwards.
    fn holds_the_tree(&self, image: &Path, what: &str) {
        let device = Arc::new(MemDevice::read_only(fs::read(image).unwrap()));
        let fs = Ext4Driver.open(device, &OpenOptions::new(Arc::new(NO_CLOCK))).unwrap();
        let found = comparable(&Snapshot::read(&Vfs::new(fs), None).unwrap());
        assert_eq!(self.tree.difference(&found, Times::Compared, None), None, "{what}");
        assert_eq!(self.tree.content_difference(&found), None, "{what}");
        if require(&[Oracle::Program("e2fsck")]) {
            call("e2fsck", ["-fn".as_ref(), image.as_os_str()]).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        fs::remove_file(image).unwrap();
    }
}

/// Removes what building a volume adds, and what no source stores.
fn comparable(tree: &Snapshot) -> Snapshot {
    let mut tree = tree.clone();
    tree.objects.remove(&b"lost+found"[..]);
    for (path, object) in &mut tree.objects {
        let object: &mut Object = Arc::make_mut(object);
        object.meta.ctime = object.meta.mtime;
        if path.is_empty() {
            object.meta.nlink = 0;
        }
    }
    tree
}

fn settings(block_size: Option<u32>, features: &[&str]) -> BuildSettings {
    BuildSettings {
        block_size,
        features: features.iter().map(ToString::to_string).collect(),
        owner: Owner::Keep,
        xattrs: true,
        ..BuildSettings::new("ext4")
    }
}

#[test]
fn a_volume_of_any_shape_holds_the_tree_that_it_was_built_of() {
    let fixture = Fixture::new();
    let (sources, image) = ([BuildSource::Directory(fixture.path("tree"))], fixture.path("built.img"));
    let shapes: [(Option<u32>, &[&str]); 8] = [
        (None, &[]),
        (Some(1024), &["^has_journal"]),
        (Some(1024), &["^extent", "^64bit", "^metadata_csum"]),
        (Some(2048), &["inline_data", "ea_inode"]),
        (Some(4096), &["bigalloc"]),
        (Some(4096), &["^resize_inode", "meta_bg", "orphan_file"]),
        (Some(1024), &["^flex_bg", "^dir_index", "sparse_super2"]),
        (Some(1024), &["^huge_file", "^dir_nlink", "^extra_isize", "^large_file"]),
    ];
    for (block_size, features) in shapes {
        let what = format!("{block_size:?}, {features:?}");
        let settings = settings(block_size, features);
        let report = build_verified(&image, &sources, &settings, &Registry::default(), &mut Quiet::default());
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.files >= 1630 && report.directories > 2, "{what}: {report:?}");
        fixture.holds_the_tree(&image, &what);
    }
}

#[test]
fn a_size_is_kept_to_and_the_least_is_less_than_with_room() {
    let fixture = Fixture::new();
    let (sources, image) = ([BuildSource::Directory(fixture.path("tree"))], fixture.path("built.img"));
    let built = |settings: &BuildSettings| {
        let built = build(&image, &sources, settings, &Registry::default(), &mut Quiet::default());
        built.map(|_| {
            let len = fs::metadata(&image).unwrap().len();
            fixture.holds_the_tree(&image, "of some size");
            len
        })
    };
    let plain = settings(None, &[]);
    let least = built(&BuildSettings { room: FreeSpace::Least, ..plain.clone() }).unwrap();
    let roomy = built(&BuildSettings { room: FreeSpace::Free(60), ..plain.clone() }).unwrap();
    assert!(least < roomy, "{least} and {roomy} bytes");
    assert_eq!(built(&BuildSettings { size: Some(200 << 20), ..plain.clone() }).unwrap(), 200 << 20);
    match built(&BuildSettings { size: Some(4 << 20), ..plain.clone() }) {
        Err(BuildFailure::TooSmall { size, needed }) => {
            assert_eq!(size, 4 << 20);
            assert!(built(&BuildSettings { size: Some(needed), ..plain }).is_ok(), "{needed} bytes suffice");
        }
        other => panic!("a tree that does not fit: {other:?}"),
    }
    assert!(!image.exists(), "what fails leaves nothing");
}

#[test]
fn an_archive_from_a_pipe_becomes_its_tree() {
    // An archive contains no sockets.
    let fixture = Fixture::without(&["special/socket"]);
    let (archive, image) = (fixture.path("tree.tar"), fixture.path("built.img"));
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let tree = fixture.path("tree");
    let reported =
        ["--create", "--sparse", "--xattrs", "--xattrs-include=*", "--format=posix", "--numeric-owner", "-f"];
    let named = [archive.as_path(), Path::new("-C"), &tree, Path::new(".")];
    call("tar", reported.map(Path::new).into_iter().chain(named)).unwrap();
    for features in [&[][..], &["inline_data"], &["bigalloc"]] {
        let pipe = fixture.path("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        let (from, to) = (archive.clone(), pipe.clone());
        let writer = std::thread::spawn(move || {
            std::io::copy(&mut File::open(from).unwrap(), &mut File::options().write(true).open(to).unwrap())
                .unwrap()
        });
        let source = [BuildSource::Archive(Input::File(pipe.clone()))];
        build(&image, &source, &settings(None, features), &Registry::default(), &mut Quiet::default())
            .unwrap();
        writer.join().unwrap();
        fs::remove_file(pipe).unwrap();
        fixture.holds_the_tree(&image, &format!("piped, {features:?}"));
    }
}

/// The error in the volumes of [`Spoiled`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The bytes of files are missing.
    Content,
    /// The super block has a wrong count of free blocks.
    Count,
}

/// A driver of ext4 that builds wrong volumes, the same each time.
struct Spoiled(Fault);

impl Driver for Spoiled {
    fn names(&self) -> &'static [&'static str] {
        Ext4Driver.names()
    }

    fn access(&self) -> Access {
        Ext4Driver.access()
    }

    fn probe(&self, device: &dyn BlockDevice) -> obento::Result<Option<Probe>> {
        Ext4Driver.probe(device)
    }

    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> obento::Result<Arc<dyn FileSystem>> {
        Ext4Driver.open(device, options)
    }

    fn format(&self) -> Option<&dyn Format> {
        Some(&Ext4Driver)
    }

    fn check(&self) -> Option<&dyn Check> {
        Some(&Ext4Driver)
    }

    fn build(&self) -> Option<&dyn Build> {
        Some(self)
    }
}

impl Build for Spoiled {
    fn plan<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
    ) -> Result<Box<dyn BuildPlan + 't>, BuildError> {
        Ok(Box::new(SpoiledPlan(Build::plan(&Ext4Driver, tree, options)?, self.0)))
    }
}

struct SpoiledPlan<'t>(Box<dyn BuildPlan + 't>, Fault);

impl BuildPlan for SpoiledPlan<'_> {
    fn formatted(&self) -> &Formatted {
        self.0.formatted()
    }

    fn device_len(&self) -> u64 {
        self.0.device_len()
    }

    fn places(&self, node: NodeId, sink: &mut dyn FnMut(Range<u64>, u64)) {
        if self.1 != Fault::Content {
            self.0.places(node, sink);
        }
    }

    fn write(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        self.0.write(device)?;
        if self.1 == Fault::Count {
            // `s_free_blocks_count_lo`.
            device.write_at(1024 + 12, &[0xff; 2])?;
        }
        Ok(())
    }
}

#[test]
fn a_build_that_is_verified_fails_if_the_check_or_the_sources_say_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("built.img"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "bytes that must be there").unwrap();
    let sources = [BuildSource::Directory(tree)];
    let settings = settings(None, &["^metadata_csum"]);
    let built = |registry: &Registry| {
        let built = build_verified(&image, &sources, &settings, registry, &mut Quiet::default());
        assert_eq!(image.exists(), built.is_ok());
        built
    };
    let spoiled = |fault| built(&Registry::empty().with(Spoiled(fault))).unwrap_err();
    match spoiled(Fault::Content) {
        BuildFailure::Differs(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(lines, ["/file: the contents differ in the image, first in byte 0"]);
        }
        other => panic!("{other:?}"),
    }
    match spoiled(Fault::Count) {
        BuildFailure::NotSound(findings) => assert!(findings[0].contains("free block count"), "{findings:?}"),
        other => panic!("{other:?}"),
    }
    built(&Registry::default()).unwrap();
}
