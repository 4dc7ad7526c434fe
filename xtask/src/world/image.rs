//! Images: compares the output of obento with blkid, with the kernel's mount, and with the tools of the format.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::harvest::Item;
use super::names;
use super::run::{ItemFolder, Mount, last_line, ran, text};
use super::tree::{Depth, Tree};

/// Types that the host's kernel mounts, with the options that prevent a log replay.
const MOUNTED: [(&str, &str); 7] = [
    ("ext2", "ro"),
    ("ext3", "ro"),
    ("ext4", "ro"),
    ("xfs", "ro,nouuid"),
    ("btrfs", "ro,subvolid=5"),
    ("squashfs", "ro"),
    ("erofs", "ro"),
];

/// Types that both obento and a Debian program check: the program with its options, and its exit codes for damage.
const CHECKED: [(&str, &str, &[&str]); 6] = [
    ("ext2", "e2fsck", &["-fn"]),
    ("ext3", "e2fsck", &["-fn"]),
    ("ext4", "e2fsck", &["-fn"]),
    ("vfat", "fsck.fat", &["-n"]),
    ("exfat", "fsck.exfat", &["-n"]),
    ("ntfs", "ntfsfix", &["-n"]),
];

/// Returns the aspects in which obento differs from its judges.
pub fn compare(folder: &ItemFolder, item: &Item) -> Result<Vec<(&'static str, String)>> {
    // Judges get a copy, because a mount may write.
    let image = folder.path("image")?;
    text("cp", &["--sparse=always".as_ref(), item.plain.as_os_str(), image.as_os_str()])?;
    let seen = Seen::by_blkid(&image)?;
    let reported = folder.obento(&["info".as_ref(), "--json".as_ref(), image.as_os_str()])?;
    let lines: Vec<Value> = String::from_utf8_lossy(&reported.stdout)
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let volumes: Vec<_> =
        lines.iter().filter(|line| line["kind"] == "volume" && line.get("partition").is_none()).collect();
    let volume = volumes.first().filter(|volume| volume.get("file_system").is_some());
    let mut found = Vec::new();
    let Some(seen) = seen else {
        found.extend(volume.map(|volume| {
            ("type", format!("{} is recognised, but blkid recognises nothing", volume["file_system"]))
        }));
        return Ok(found);
    };
    let Some(volume) = volume else {
        // A judge also refuses some damaged volumes, and volumes of several devices.
        if matches!(judged(&image, &seen.kind, &folder.folder("judged")?)?, Judged::Refused(_)) {
            return Ok(found);
        }
        found.push(("type", format!("{} is not opened: {}", seen.kind, last_line(&reported))));
        return Ok(found);
    };
    let of = |field: &str| volume.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    for (aspect, ours, theirs) in [
        ("type", of("file_system"), &seen.kind),
        ("label", of("label"), &seen.label),
        ("uuid", of("uuid"), &seen.uuid),
    ] {
        if !ours.eq_ignore_ascii_case(theirs) {
            found.push((aspect, format!("`{ours}`, but blkid reports `{theirs}`")));
        }
    }
    found.extend(trees(folder, &image, &seen.kind)?.map(|what| ("tree", what)));
    if seen.kind == "ntfs" {
        found.extend(names::difference(folder, &image)?.map(|what| ("names", what)));
    }
    found.extend(checks(folder, &image, &seen.kind)?.map(|what| ("check", what)));
    Ok(found)
}

/// The output of blkid(8) for an image.
struct Seen {
    kind: String,
    label: String,
    uuid: String,
}

impl Seen {
    /// Returns `None` if blkid finds no file system.
    fn by_blkid(image: &Path) -> Result<Option<Self>> {
        let args = ["-p", "-u", "filesystem", "-o", "export"].map(AsRef::as_ref);
        let said = ran("blkid", &[&args[..], &[image.as_os_str()]].concat())?.stdout;
        let said = String::from_utf8_lossy(&said);
        let field = |name: &str| {
            let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().replace("\\ ", " ").trim_end().to_owned()
        };
        let kind = match field("TYPE") {
            kind if kind == "minix" && field("VERSION") != "3" => format!("minix{}", field("VERSION")),
            kind => kind,
        };
        Ok((!kind.is_empty()).then(|| Self { kind, label: field("LABEL"), uuid: field("UUID") }))
    }
}

/// Compares the tree that obento copies with the tree of a judge.
fn trees(folder: &ItemFolder, image: &Path, kind: &str) -> Result<Option<String>> {
    let copied = folder.folder("copied")?;
    let mut root = OsString::from(image);
    root.push(":/.");
    let output = folder.obento(&["cp".as_ref(), "-a".as_ref(), &root, copied.as_os_str()])?;
    let said = || format!("obento does not copy everything: {}", last_line(&output));
    let folder = folder.folder("judged")?;
    let judged = match judged(image, kind, &folder)? {
        Judged::VolumeOptions(depth, _mount) => Some((Tree::read(&folder)?, depth)),
        Judged::Refused(why) if output.status.success() => {
            return Ok(Some(format!("copied, but refused by the judge: {why}")));
        }
        Judged::Refused(_) => return Ok(None),
        Judged::NoJudge => None,
    };
    match judged {
        _ if !output.status.success() => Ok(Some(said())),
        Some((judged, depth)) => Ok(judged.difference(&Tree::read(&copied)?, depth)),
        None => Ok(None),
    }
}

/// The result of a judge.
enum Judged {
    /// The tree, compared to this depth, which exists while the mount does.
    VolumeOptions(Depth, Option<Mount>),
    Refused(String),
    NoJudge,
}

/// Extracts or mounts an image at `folder`.
fn judged(image: &Path, kind: &str, folder: &Path) -> Result<Judged> {
    if let Some((_, options)) = MOUNTED.iter().find(|(known, _)| *known == kind) {
        let mount = Mount::new(image, folder, &["-t", kind, "-o", options]);
        return Ok(match mount {
            Ok(mount) => Judged::VolumeOptions(Depth::All { since: i64::MAX }, Some(mount)),
            Err(error) => Judged::Refused(error.to_string()),
        });
    }
    let unpacked = match kind {
        "vfat" => ran(
            "mcopy",
            &["-Q", "-s", "-n", "-m", "-i"]
                .map(AsRef::as_ref)
                .into_iter()
                .chain([image.as_os_str(), "::/".as_ref(), folder.as_os_str()])
                .collect::<Vec<&OsStr>>(),
        )?,
        "iso9660" => ran("bsdtar", &["-xf".as_ref(), image.as_os_str(), "-C".as_ref(), folder.as_os_str()])?,
        "exfat" | "ntfs" => {
            let program = if kind == "ntfs" { "ntfs-3g" } else { "exfat-fuse" };
            let mount = Mount::new(image, folder, &["-t", program, "-o", "ro"]);
            return Ok(match mount {
                Ok(mount) => Judged::VolumeOptions(Depth::Contents, Some(mount)),
                Err(error) => Judged::Refused(error.to_string()),
            });
        }
        _ => return Ok(Judged::NoJudge),
    };
    Ok(match unpacked.status.success() {
        true => Judged::VolumeOptions(Depth::Contents, None),
        false => Judged::Refused(last_line(&unpacked)),
    })
}

/// Returns a difference between obento's check and that of the format's program.
fn checks(folder: &ItemFolder, image: &Path, kind: &str) -> Result<Option<String>> {
    let Some((_, program, options)) = CHECKED.iter().find(|(known, ..)| *known == kind) else {
        return Ok(None);
    };
    let ours = folder.obento(&["check".as_ref(), image.as_os_str()])?;
    let args: Vec<&OsStr> = options.iter().map(AsRef::as_ref).chain([image.as_os_str()]).collect();
    let theirs = ran(program, &args)?;
    let first = |bytes: &[u8]| {
        let said = String::from_utf8_lossy(bytes);
        said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().replace('|', "/")
    };
    Ok(match (ours.status.success(), theirs.status.success()) {
        (true, false) => Some(format!("clean, but {program} exits with {:?}", theirs.status.code())),
        (false, true) => Some(format!("not clean ({}), but {program} succeeds", first(&ours.stdout))),
        _ => None,
    })
}
