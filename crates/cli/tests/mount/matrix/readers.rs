//! The volumes and servers that obento only reads, and an NFS export, with the cases that read.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use obento::Registry;
use obento::driver::{Access, CheckOptions, FileSystem, OpenOptions};
use obento::env::SystemClock;
use obento_fuse_source::FuseServer;
use obento_host::FileDevice;
use obento_nfs_source::{Export, NfsAddress};
use obento_testkit::conformance::reading_cases;
use obento_testkit::ganesha::Ganesha;
use obento_testkit::hosts::{CaseEnd, Library, cases};
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

use super::{Table, ends, sentence};
use crate::support::{obento, wait_until};

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../fs/lfs/tests/common/recipe.rs"]
mod lfs;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../fs/bcachefs/tests/volumes/recipe.rs"]
mod bcachefs;

/// The columns: the types of drivers that only read, and the servers.
const COLUMNS: [(&str, Option<&str>); 6] = [
    ("NTFS", Some("ntfs")),
    ("JFFS2", Some("jffs2")),
    ("LFS", Some("lfs")),
    ("bcachefs", Some("bcachefs")),
    ("FUSE server", None),
    ("NFS export", None),
];

/// A folder with the sources.
struct Lab {
    folder: TempDir,
    /// Absent until a column requires it.
    server: Option<Ganesha>,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("obento-matrix-").tempdir().unwrap(), server: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, name: &str, arguments: &[&str]) {
        run(program(name).args(arguments).current_dir(self.folder.path())).unwrap();
    }

    /// Writes a tree for the sources that are created from one.
    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        if !tree.exists() {
            fs::create_dir_all(&tree).unwrap();
            fill(&tree);
            set_attribute(&tree);
        }
        tree
    }

    fn open(&self, column: &str) -> Arc<dyn FileSystem> {
        match column {
            "NTFS" => self.ntfs(),
            "JFFS2" => {
                let tree = self.tree();
                let arguments =
                    ["build", "-t", "jffs2", "jffs2", "-q", "--xattrs", "--from", tree.to_str().unwrap()];
                obento(self.folder.path(), &arguments);
            }
            "LFS" => fs::write(self.path("lfs"), lfs::Recipe::default().write()).unwrap(),
            "bcachefs" => fs::write(self.path("bcachefs"), bcachefs::Recipe::default().write()).unwrap(),
            "FUSE server" => {
                self.run("mksquashfs", &[self.tree().to_str().unwrap(), "squash", "-quiet", "-no-progress"]);
                let command: OsString = format!("squashfuse {}", self.path("squash").display()).into();
                let access = Access::ReadOnly;
                return FuseServer::start(&command, None, access).unwrap().mount(access).unwrap();
            }
            _ => return self.export(Access::ReadOnly),
        }
        self.volume(&column.to_lowercase())
    }

    /// Opens the image `name` with the driver of this name.
    fn volume(&self, name: &str) -> Arc<dyn FileSystem> {
        let registry = Registry::default();
        let driver = registry.drivers().iter().find(|driver| driver.names()[0] == name).unwrap();
        let device: Arc<FileDevice> = Arc::new(FileDevice::open(&self.path(name)).unwrap());
        if let Some(check) = driver.check() {
            let mut found = Vec::new();
            check.check(device.clone(), &CheckOptions::new(Arc::new(SystemClock)), &mut found).unwrap();
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
        driver.open(device, &OpenOptions::new(Arc::new(SystemClock))).unwrap()
    }

    fn ntfs(&self) {
        File::create(self.path("ntfs")).unwrap().set_len(24 << 20).unwrap();
        self.run("mkntfs", &["-F", "-q", "-s", "512", "-p", "0", "-H", "16", "-S", "63", "ntfs"]);
        fs::create_dir(self.path("mnt")).unwrap();
        let mut server = program("ntfs-3g");
        server.args(["-o", "no_detach,streams_interface=xattr", "ntfs", "mnt"]);
        let mut server = server.current_dir(self.folder.path()).spawn().unwrap();
        let mount = self.path("mnt");
        wait_until("the mount", || is_mount_point(&mount));
        fill(&mount);
        set_attribute(&mount);
        self.run("umount", &["mnt"]);
        server.wait().unwrap();
    }

    fn start_server(&mut self) {
        // A file system with a known size and without a limit of file sizes.
        let export = self.path("export");
        fs::create_dir(&export).unwrap();
        self.run("mount", &["-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", "export"]);
        fill(&export);
        self.server = Ganesha::start_writable(self.folder.path(), &export);
    }

    fn stop_server(&mut self) {
        self.server = None;
        wait_until("the unmount", || {
            let umount = program("umount").arg(self.path("export")).output();
            umount.unwrap().status.success()
        });
    }

    fn address(&self) -> NfsAddress {
        let server = self.server.as_ref().expect("it was started");
        let text = format!(
            "nfs://127.0.0.1:{}{}?mountport={}",
            server.port,
            self.path("export").display(),
            server.mount_port
        );
        NfsAddress::parse(text.as_bytes()).unwrap()
    }

    fn export(&self, access: Access) -> Arc<dyn FileSystem> {
        mount_export(&self.address(), access)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.stop_server();
        }
    }
}

/// Mounts an export. The server accepts connections after a moment.
fn mount_export(address: &NfsAddress, access: Access) -> Arc<dyn FileSystem> {
    let start = Instant::now();
    loop {
        match Export::open(address).and_then(|export| export.mount(access)) {
            Ok(fs) => return fs,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
    }
}

fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let parent = path.parent().expect("it has a parent");
    fs::metadata(path).is_ok_and(|stat| stat.dev() != fs::metadata(parent).unwrap().dev())
}

/// Writes files of many kinds below `root`.
fn fill(root: &Path) {
    fs::create_dir_all(root.join("dir/deep/deeper")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("dir/small"), "contents\n").unwrap();
    let noise = |n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes();
    fs::write(root.join("dir/large"), (0..100_000).flat_map(noise).collect::<Vec<u8>>()).unwrap();
    let sparse = File::create(root.join("dir/sparse")).unwrap();
    sparse.write_all_at(&[7; 5000], 0).unwrap();
    sparse.write_all_at(&[7; 5000], 300_000).unwrap();
    for number in 0..200 {
        fs::write(root.join(format!("dir/deep/deeper/file {number}")), number.to_string()).unwrap();
    }
    fs::hard_link(root.join("dir/small"), root.join("second")).unwrap();
    symlink("dir/small", root.join("link")).unwrap();
    run(program("mkfifo").arg(root.join("pipe"))).unwrap();
}

/// Sets an extended attribute.
fn set_attribute(root: &Path) {
    let attribute = ["-n", "user.key", "-v", "value"];
    run(program("setfattr").args(attribute).arg(root.join("dir/small"))).unwrap();
}

fn has_programs() -> bool {
    let programs = ["mkntfs", "ntfs-3g", "squashfuse", "mksquashfs", "setfattr", "ganesha.nfsd", "rpcbind"];
    require(&programs.map(Oracle::Program)) && require(&[Oracle::Fuse, Oracle::Root])
}

#[test]
fn every_driver_that_only_reads_is_on_the_page() {
    let registry = Registry::default();
    let readers = registry.natives().iter().filter(|driver| driver.access() == Access::ReadOnly);
    let missing: Vec<_> = readers
        .map(|driver| driver.names()[0])
        .filter(|name| !COLUMNS.iter().any(|(_, driver)| *driver == Some(name)))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Runs the cases that read on every source, and the host cases on the export. One server serves both: a port
/// mapper belongs to the first server.
static TABLES: LazyLock<Option<[Table; 2]>> = LazyLock::new(|| {
    if !has_programs() {
        return None;
    }
    let mut lab = Lab::new();
    lab.start_server();
    let column = |name: &'static str| {
        let fs = lab.open(name);
        (name, reading_cases().into_iter().map(|(_, case)| CaseEnd::of(|| case(&*fs))).collect())
    };
    let columns = COLUMNS.iter().map(|(name, _)| column(name)).collect();
    let names = reading_cases().into_iter().map(|(name, _)| sentence(name)).collect();
    let address = lab.address();
    let mut library = Library::new(move |access| Ok(mount_export(&address, access))).without_removed_files();
    let all = cases();
    let seen = ends(&all, &mut library);
    let described = all.iter().map(|case| case.name.to_owned()).collect();
    Some([
        Table::new("The contract of sources that are read", names, columns),
        Table::new("What programs see of an NFS export", described, vec![("NFS export", seen)]),
    ])
});

#[test]
fn sources_that_are_read_keep_the_contract_as_the_page_says() {
    if let Some([contract, _]) = &*TABLES {
        contract.is_on_the_page();
    }
}

#[test]
fn programs_see_what_they_should_of_an_nfs_export_as_the_page_says() {
    if let Some([_, programs]) = &*TABLES {
        programs.is_on_the_page();
    }
}
