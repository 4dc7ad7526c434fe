//! The operating system that a volume contains, from its files.
//!
//! Invariant: a fixed number of files is looked up, and at most [`MOST`] bytes of each are read. No image can therefore
//! make this take long. Values are cut at [`LONGEST`] bytes.
//!
//! Source: os-release(5), hostname(5); System V ABI, "ELF Header".

use obento::Volume;

use crate::commands::file::machine_of;

/// The most bytes that are read of a file.
const MOST: usize = 16 << 10;
/// The most bytes of a value.
const LONGEST: usize = 256;

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
    /// `ID` of os-release, such as `debian`.
    pub id: Option<String>,
    /// `VERSION_ID`.
    pub version: Option<String>,
    /// `PRETTY_NAME`.
    pub name: Option<String>,
    pub host_name: Option<String>,
    /// The machine that the shell runs on.
    pub architecture: Option<String>,
    pub init: Option<String>,
    pub package_manager: Option<String>,
}

impl System {
    /// Returns the operating system of a volume that has an os-release file or a shell.
    pub fn of(volume: &Volume) -> Option<Self> {
        let release = ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| start(volume, path));
        let shells = ["/bin/sh", "/usr/bin/sh", "/bin/bash", "/bin/busybox"];
        let architecture = shells.iter().find_map(|path| machine_of(&start(volume, path)?));
        if release.is_none() && architecture.is_none() {
            return None;
        }
        let release = release.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let first = |table: &[(&str, &str)]| {
            let found = table.iter().find(|(path, _)| volume.metadata(path).is_ok());
            found.map(|(_, name)| (*name).to_owned())
        };
        let host_name = start(volume, "/etc/hostname").and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).map(cut)
        });
        Some(Self {
            id: value(&release, "ID"),
            version: value(&release, "VERSION_ID"),
            name: value(&release, "PRETTY_NAME").or_else(|| value(&release, "NAME")),
            host_name,
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

/// Returns the value of a variable of an os-release file, without its quotes.
fn value(release: &str, name: &str) -> Option<String> {
    let assigned = |line: &str| line.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    // The last assignment counts, as in a shell.
    let text = release.lines().filter_map(assigned).next_back()?;
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = quote.and_then(|quote| text.strip_prefix(quote)?.strip_suffix(quote)).unwrap_or(&text);
    let mut plain = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' && quote != Some('\'') { chars.next() } else { Some(c) });
    }
    Some(cut(&plain)).filter(|value| !value.is_empty())
}

/// Cuts a value at a character after at most [`LONGEST`] bytes.
fn cut(text: &str) -> String {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= LONGEST).last().unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_os_release_are_unquoted_and_cut() {
        let release =
            "NAME=first\nID=debian\nPRETTY_NAME=\"a \\\"b\\\" \u{e4}\"\nVERSION_ID='1\\2'\nNAME=last\nX=\n";
        assert_eq!(value(release, "ID").as_deref(), Some("debian"));
        assert_eq!(value(release, "PRETTY_NAME").as_deref(), Some("a \"b\" \u{e4}"));
        assert_eq!(value(release, "VERSION_ID").as_deref(), Some("1\\2"));
        assert_eq!(
            (value(release, "NAME").as_deref(), value(release, "X"), value(release, "Y")),
            (Some("last"), None, None)
        );
        assert_eq!(value(&format!("ID=\"{}", "\u{e4}".repeat(1000)), "ID").unwrap().len(), 255);
    }
}
