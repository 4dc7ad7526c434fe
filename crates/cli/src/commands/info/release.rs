//! The release and the host name of an operating system, from the files that distributions use for them.
//!
//! Source: os-release(5), hostname(5), rc.conf(5), myname(5); the inspection rules of libguestfs
//! (`daemon/inspect_fs_unix.ml`).

use std::ops::Not;

/// The most bytes of a value.
const LONGEST: usize = 256;

/// Files whose first line is the release of a distribution, with its os-release ID and its name. The first file counts.
const RELEASES: &[(&str, &str, &str)] = &[
    ("/etc/oracle-release", "ol", "Oracle Linux"),
    ("/etc/centos-release", "centos", "CentOS"),
    ("/etc/altlinux-release", "altlinux", "ALT Linux"),
    ("/etc/fedora-release", "fedora", "Fedora"),
    ("/etc/redhat-release", "rhel", "Red Hat"),
    ("/etc/debian_version", "debian", "Debian GNU/Linux"),
    ("/etc/pardus-release", "pardus", "Pardus"),
    ("/etc/arch-release", "arch", "Arch Linux"),
    ("/etc/gentoo-release", "gentoo", "Gentoo"),
    ("/etc/slackware-version", "slackware", "Slackware"),
    ("/etc/SuSE-release", "suse", "SUSE"),
    ("/etc/cirros/version", "cirros", "CirrOS"),
    ("/etc/br-version", "buildroot", "Buildroot"),
    ("/etc/alpine-release", "alpine", "Alpine Linux"),
    ("/etc/frugalware-release", "frugalware", "Frugalware"),
    ("/etc/pld-release", "pld", "PLD Linux"),
];

/// Starts of the first line of `redhat-release`, which derived distributions have, too.
const OF_RED_HAT: &[(&str, &str)] = &[
    ("Fedora", "fedora"),
    ("CentOS", "centos"),
    ("Scientific Linux", "scientific"),
    ("Oracle Linux", "ol"),
    ("Rocky Linux", "rocky"),
    ("AlmaLinux", "almalinux"),
];

/// Files whose text is a host name.
const HOST_NAMES: &[&str] = &["/etc/hostname", "/etc/HOSTNAME", "/etc/myname"];
/// Files that assign a host name to a variable: Red Hat before 7, FreeBSD and NetBSD, OpenRC.
const HOST_VARIABLES: &[(&str, &str)] = &[
    ("/etc/sysconfig/network", "HOSTNAME"),
    ("/etc/rc.conf", "hostname"),
    ("/etc/conf.d/hostname", "hostname"),
];

/// The release of an operating system. Values that the files do not contain are absent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Release {
    pub id: Option<String>,
    pub version: Option<String>,
    pub name: Option<String>,
}

impl Release {
    /// Finds the release. `read` returns the start of a file.
    pub fn find(read: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| read(path));
        if let Some(text) = text {
            return Some(Self::of_os_release(&text).with_point_release(read));
        }
        let lsb = read("/etc/lsb-release").map(|text| Self::of_lsb_release(&text));
        lsb.filter(|lsb| lsb.id.is_some()).or_else(|| {
            RELEASES.iter().find_map(|&(path, id, name)| Some(Self::of_text(&read(path)?, id, name)))
        })
    }

    fn of_os_release(text: &str) -> Self {
        Self {
            id: value(text, "ID"),
            version: value(text, "VERSION_ID"),
            name: value(text, "PRETTY_NAME").or_else(|| value(text, "NAME")),
        }
    }

    fn of_lsb_release(text: &str) -> Self {
        Self {
            id: value(text, "DISTRIB_ID").map(|id| id.to_lowercase()),
            version: value(text, "DISTRIB_RELEASE"),
            name: value(text, "DISTRIB_DESCRIPTION"),
        }
    }

    /// Returns the release of a file whose text begins with a sentence or a version.
    fn of_text(text: &str, id: &str, name: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        let derived = OF_RED_HAT.iter().find(|(start, _)| line.starts_with(start));
        let shown = match line.chars().next() {
            None => name.to_owned(),
            Some(first) if first.is_ascii_digit() && !line.contains(name) => format!("{name} {line}"),
            Some(_) => line.to_owned(),
        };
        Self {
            id: Some(derived.filter(|_| id == "rhel").map_or(id, |(_, id)| id).to_owned()),
            version: version_in(line),
            name: Some(cut(&shown)),
        }
    }

    /// Adds the point release, which os-release of Debian and CentOS lacks.
    fn with_point_release(mut self, read: &impl Fn(&str) -> Option<String>) -> Self {
        let path = match self.id.as_deref() {
            Some("debian") => "/etc/debian_version",
            Some("centos") => "/etc/centos-release",
            _ => return self,
        };
        let longer = read(path).and_then(|text| version_in(text.lines().next()?));
        let known = self.version.as_deref().map(|version| format!("{version}."));
        self.version =
            longer.filter(|longer| known.is_some_and(|known| longer.starts_with(&known))).or(self.version);
        self
    }
}

/// Finds the host name. `read` returns the start of a file.
pub(super) fn host_name(read: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let first = |text: String| {
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).map(cut)
    };
    let assigned = |&(path, name): &(&str, &str)| value(&read(path)?, name);
    HOST_NAMES.iter().find_map(|path| first(read(path)?)).or_else(|| HOST_VARIABLES.iter().find_map(assigned))
}

/// Returns the first version in a line: a word of digits and points.
fn version_in(line: &str) -> Option<String> {
    let words = line.split_whitespace().filter(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    let number = |word: &str| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        word[..end].trim_end_matches('.').to_owned()
    };
    words.map(number).map(|number| cut(&number)).next()
}

/// Returns the text up to `quote`, or `None` if the quote is not closed.
fn up_to(text: &str, quote: char) -> Option<&str> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            c if c == quote => return Some(&text[..at]),
            _ => {}
        }
    }
    None
}

/// Returns the value of a variable of an os-release file, without its quotes and without a comment.
fn value(release: &str, name: &str) -> Option<String> {
    let assigned = |line: &str| line.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    // The last assignment counts, as in a shell.
    let text = release.lines().filter_map(assigned).next_back()?;
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = match quote {
        Some(quote) => text.strip_prefix(quote).and_then(|rest| up_to(rest, quote)).unwrap_or(&text),
        None => text.split(" #").next().unwrap_or(&text).trim_end(),
    };
    let mut plain = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' && quote != Some('\'') { chars.next() } else { Some(c) });
    }
    plain.is_empty().not().then(|| cut(&plain))
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
    fn a_comment_is_no_part_of_a_value() {
        let text = "a=\"b c\" # it's d\ne=f # g\nh='i#j'\nk=l#m\n";
        let values = ["a", "e", "h", "k"].map(|name| value(text, name).unwrap());
        assert_eq!(values, ["b c", "f", "i#j", "l#m"]);
    }

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

    /// Finds the ID, the version and the name for files with texts.
    fn found(files: &[(&str, &str)]) -> [String; 3] {
        let read =
            |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        let Release { id, version, name } = Release::find(&read).unwrap_or_default();
        [id, version, name].map(Option::unwrap_or_default)
    }

    #[test]
    fn systems_without_os_release_are_named_by_their_other_files() {
        for (path, text, expected) in [
            ("/etc/debian_version", "5.0.3\n", ["debian", "5.0.3", "Debian GNU/Linux 5.0.3"]),
            ("/etc/debian_version", "lenny/sid\n", ["debian", "", "lenny/sid"]),
            (
                "/etc/redhat-release",
                "CentOS release 6.10 (Final)\n",
                ["centos", "6.10", "CentOS release 6.10 (Final)"],
            ),
            (
                "/etc/redhat-release",
                "Red Hat Enterprise Linux Server release 7.9 (Maipo)\n",
                ["rhel", "7.9", "Red Hat Enterprise Linux Server release 7.9 (Maipo)"],
            ),
            ("/etc/arch-release", "", ["arch", "", "Arch Linux"]),
            ("/etc/alpine-release", "3.2.1\n", ["alpine", "3.2.1", "Alpine Linux 3.2.1"]),
            ("/etc/slackware-version", "Slackware 14.2+", ["slackware", "14.2", "Slackware 14.2+"]),
            (
                "/etc/lsb-release",
                "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=10.04\nDISTRIB_DESCRIPTION=\"Ubuntu 10.04.1 LTS\"\n",
                ["ubuntu", "10.04", "Ubuntu 10.04.1 LTS"],
            ),
        ] {
            assert_eq!(found(&[(path, text)]), expected, "{path}");
        }
        // Some distributions have a file of this name without a distribution.
        let both = [("/etc/lsb-release", "LSB_VERSION=1.3\n"), ("/etc/pld-release", "3.0 PLD Linux (Th)\n")];
        assert_eq!(found(&both), ["pld", "3.0", "3.0 PLD Linux (Th)"]);
        assert_eq!(found(&[]), ["", "", ""]);
    }

    #[test]
    fn a_point_release_is_used_only_if_it_continues_the_version() {
        let of = |version: &str| {
            found(&[("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n"), ("/etc/debian_version", version)])
        };
        assert_eq!(of("12.9\n")[1], "12.9");
        assert_eq!(of("trixie/sid\n")[1], "12");
        assert_eq!(of("120.1\n")[1], "12");
    }

    #[test]
    fn host_names_are_those_of_the_first_file_that_has_one() {
        let of = |files: &[(&str, &str)]| {
            host_name(&|path: &str| {
                files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(of(&[("/etc/hostname", "# x\n\n a \n"), ("/etc/HOSTNAME", "b")]).as_deref(), Some("a"));
        assert_eq!(of(&[("/etc/hostname", "\n"), ("/etc/HOSTNAME", "b")]).as_deref(), Some("b"));
        let network = ("/etc/sysconfig/network", "NETWORKING=yes\nHOSTNAME=old.example.org\n");
        assert_eq!(of(&[network]).as_deref(), Some("old.example.org"));
        assert_eq!(of(&[("/etc/rc.conf", "hostname=\"bsd\"\n")]).as_deref(), Some("bsd"));
        assert_eq!(of(&[]), None);
    }
}
