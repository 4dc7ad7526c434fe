//! The operating system that a volume contains, from its files.
//!
//! Invariant: a fixed number of files is looked up, and at most [`MOST`] bytes of each are read. No image can therefore
//! make this take long. Values are cut (`release.rs`).
//!
//! Source: System V ABI, "ELF Header".

use obento::Volume;

use super::release::{Release, host_name};
use crate::commands::file::machine_of;

/// The most bytes that are read of a file.
const MOST: usize = 16 << 10;

/// Files and the init system that they belong to, the first match first.
const INITS: &[(&str, &str)] = &[
    ("/usr/lib/systemd/systemd", "systemd"),
    ("/lib/systemd/systemd", "systemd"),
    ("/sbin/openrc", "OpenRC"),
    ("/usr/bin/openrc", "OpenRC"),
    ("/sbin/runit", "runit"),
    ("/usr/bin/runit", "runit"),
    ("/bin/s6-svscan", "s6"),
    ("/sbin/procd", "procd"),
    ("/sbin/upstart", "Upstart"),
    ("/etc/inittab", "init with /etc/inittab"),
];

/// Files and the package manager that they belong to, the first match first.
const PACKAGES: &[(&str, &str)] = &[
    ("/var/lib/dpkg/status", "dpkg"),
    ("/usr/lib/sysimage/rpm", "rpm"),
    ("/var/lib/rpm", "rpm"),
    ("/lib/apk/db", "apk"),
    ("/usr/lib/apk/db", "apk"),
    ("/var/lib/pacman", "pacman"),
    ("/var/db/xbps", "xbps"),
    ("/var/db/pkg", "portage"),
    ("/usr/lib/opkg", "opkg"),
    ("/nix/store", "nix"),
];

/// An operating system. Values that the files do not contain are absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct System {
    /// `ID` of os-release, such as `debian`, or the ID that another file implies.
    pub id: Option<String>,
    /// The version, with the point release if a file contains it.
    pub version: Option<String>,
    /// The name for people.
    pub name: Option<String>,
    pub host_name: Option<String>,
    /// The machine that the shell runs on.
    pub architecture: Option<String>,
    pub init: Option<String>,
    pub package_manager: Option<String>,
}

impl System {
    /// Returns the operating system of a volume that has a file with its release, or a shell.
    pub fn of(volume: &Volume) -> Option<Self> {
        let text = |path: &str| start(volume, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let release = Release::find(&text);
        let shells = ["/bin/sh", "/usr/bin/sh", "/bin/bash", "/bin/busybox"];
        let architecture = shells.iter().find_map(|path| machine_of(&start(volume, path)?));
        if release.is_none() && architecture.is_none() {
            return None;
        }
        let Release { id, version, name } = release.unwrap_or_default();
        let first = |table: &[(&str, &str)]| {
            let found = table.iter().find(|(path, _)| volume.metadata(path).is_ok());
            found.map(|(_, name)| (*name).to_owned())
        };
        Some(Self {
            id,
            version,
            name,
            host_name: host_name(&text),
            architecture,
            init: first(INITS),
            package_manager: first(PACKAGES),
        })
    }

    /// Returns the values with their names: for people, and for JSON.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let facts = [
            ("operating system", "name", &self.name),
            ("OS ID", "id", &self.id),
            ("OS version", "version", &self.version),
            ("host name", "host_name", &self.host_name),
            ("architecture", "architecture", &self.architecture),
            ("init system", "init", &self.init),
            ("package manager", "package_manager", &self.package_manager),
        ];
        facts.into_iter().filter_map(|(shown, key, value)| Some((shown, key, value.as_deref()?)))
    }
}

/// Returns the start of a regular file.
fn start(volume: &Volume, path: &str) -> Option<Vec<u8>> {
    let is_file = volume.metadata(path).is_ok_and(|metadata| metadata.is_file());
    let file = volume.open(path).ok().filter(|_| is_file)?;
    let mut bytes = vec![0; MOST];
    let mut len = 0;
    while len < MOST {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) | Err(_) => break,
            Ok(read) => len += read,
        }
    }
    bytes.truncate(len);
    Some(bytes)
}
