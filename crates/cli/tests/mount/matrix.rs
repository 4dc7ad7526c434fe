//! Driver x host x case: what programs see of every format that can be made, through the library and behind a mount point.
//! `docs/matrix.md` is what this prints; `cargo xtask matrix` writes it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento::driver::OpenOptions;
use obento::{
    Access, Driver, FileSystem, FormatOptions, MemDevice, Random, Registry, SystemClock, SystemRandom,
};
use obento_testkit::hosts::{Case, End, Folder, Host, Library, cases, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

use super::support::{obento, wait_until};

/// MiB of each volume.
const SIZE: usize = 48;
const HOSTS: [&str; 2] = ["library", "FUSE"];

/// The types that can be made, each of a driver of its own.
fn formats(registry: &Registry) -> Vec<(&'static str, Arc<dyn Driver>)> {
    let types = |driver: &Arc<dyn Driver>| driver.format().and_then(|format| format.types().first().copied());
    let mut all: Vec<_> =
        registry.drivers().iter().filter_map(|driver| Some((types(driver)?, driver.clone()))).collect();
    all.sort_by_key(|(fs_type, _)| *fs_type);
    all
}

fn open(driver: &dyn Driver, device: Arc<MemDevice>, access: Access) -> obento::Result<Arc<dyn FileSystem>> {
    driver.open(device, &OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) })
}

fn library(fs_type: &str, driver: &Arc<dyn Driver>) -> Library {
    let device = Arc::new(MemDevice::new(vec![0; SIZE << 20]));
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let options = FormatOptions::new(fs_type, Arc::new(SystemClock), random);
    driver.format().unwrap().format(&*device, &options).unwrap();
    let driver = driver.clone();
    Library::new(move |access| open(&*driver, device.clone(), access))
}

/// A volume behind a mount point.
struct Mount(TempDir);

impl Mount {
    fn new(fs_type: &str) -> Self {
        let mount = Self(tempfile::Builder::new().prefix("obento-matrix-").tempdir().unwrap());
        // Whom `Host::act_as` acts for is to come as far as the volume.
        fs::set_permissions(mount.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(mount.at()).unwrap();
        obento(mount.0.path(), &["mkfs", "-q", "-t", fs_type, "disk.img", &format!("{SIZE}M")]);
        mount.mount("rw");
        mount
    }

    fn at(&self) -> PathBuf {
        self.0.path().join("mnt")
    }

    fn mount(&self, options: &str) {
        let options = format!("{options},allow_other");
        obento(self.0.path(), &["mount", "-o", &options, "disk.img", "mnt"]);
    }

    fn umount(&self) {
        wait_until("the unmount", || obento_status(self.0.path(), &["umount", "mnt"]));
    }

    /// The folder as a host.
    fn host(self: &std::rc::Rc<Self>, driver: &Arc<dyn Driver>, fs_type: &str) -> Folder {
        let limits = library(fs_type, driver).limits();
        let mount = self.clone();
        Folder::new(self.at(), limits, move |access| {
            mount.umount();
            mount.mount(if access == Access::ReadOnly { "ro" } else { "rw" });
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = obento_status(self.0.path(), &["umount", "--lazy", "mnt"]);
    }
}

fn obento_status(folder: &Path, arguments: &[&str]) -> bool {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(arguments).output().unwrap().status.success()
}

fn ends(cases: &[Case], host: &mut dyn Host) -> Vec<End> {
    cases.iter().enumerate().map(|(number, case)| run(case, number, host)).collect()
}

/// All ends: by type, by host, by case.
type Ends = Vec<(&'static str, Vec<Vec<End>>)>;

fn page(cases: &[Case], ends: &Ends) -> String {
    let mut page = String::from(include_str!("matrix.head.md"));
    let columns = ends.iter().flat_map(|(fs_type, _)| HOSTS.map(|host| format!("{fs_type}, {host}")));
    let columns: Vec<String> = columns.collect();
    writeln!(page, "| case | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len())).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let cells = ends.iter().flat_map(|(_, hosts)| hosts.iter().map(|ends| ends[number].to_string()));
        writeln!(page, "| {} | {} |", case.name, cells.collect::<Vec<_>>().join(" | ")).unwrap();
    }
    page
}

#[test]
fn every_driver_in_every_host_passes_every_case_or_lacks_what_it_needs_as_the_page_says() {
    if !require(&[Oracle::Fuse, Oracle::Root]) {
        return;
    }
    let (cases, registry) = (cases(), Registry::default());
    let all: Ends = formats(&registry)
        .into_iter()
        .map(|(fs_type, driver)| {
            let mut library = library(fs_type, &driver);
            let inside = ends(&cases, &mut library);
            library.close();
            let mount = std::rc::Rc::new(Mount::new(fs_type));
            let behind = ends(&cases, &mut mount.host(&driver, fs_type));
            mount.umount();
            obento(mount.0.path(), &["check", "disk.img"]);
            (fs_type, vec![inside, behind])
        })
        .collect();
    let page = page(&cases, &all);
    println!("{page}");
    let failed = |end: &&End| matches!(end, End::Failed(_));
    let failures: Vec<&End> =
        all.iter().flat_map(|(_, hosts)| hosts.iter().flatten()).filter(failed).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/matrix.md");
    if std::env::var_os("OBENTO_WRITE_MATRIX").is_some() {
        fs::write(path, &page).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == page,
        "`cargo xtask matrix` writes docs/matrix.md anew"
    );
}
