//! Archives: compares the results of `build` and `import` with those of GNU tar and bsdtar.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::harvest::Item;
use super::run::{ItemFolder, Mount, judged, last_line};
use super::tree::{Depth, Tree};

/// The size of the volume into which an archive is imported.
const SIZE: &str = "256M";

/// The result of reading an archive.
enum Outcome {
    Unpacked(Tree),
    /// Refused or incompletely unpacked, with this message.
    Refused(String),
}

/// Returns the aspects in which obento agrees with neither judge.
pub fn compare(folder: &ItemFolder, item: &Item) -> Result<Vec<(&'static str, String)>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().try_into()?;
    let judges = [gnu(folder, item)?, bsd(folder, item)?];
    let found = [("build", built(folder, item)?), ("import", imported(folder, item)?)];
    let of_aspect = |(aspect, outcome)| Some((aspect, difference(&judges, &outcome, since)?));
    Ok(found.into_iter().filter_map(of_aspect).collect())
}

/// Returns the difference from the nearest judge, or `None` if a judge agrees.
fn difference(judges: &[Outcome; 2], found: &Outcome, since: i64) -> Option<String> {
    let differences = judges.iter().zip(["GNU tar", "bsdtar"]).map(|(judge, name)| match (judge, found) {
        (Outcome::Refused(_), Outcome::Refused(_)) => None,
        (Outcome::Refused(why), Outcome::Unpacked(_)) => Some(format!("accepted, but {name} reports: {why}")),
        (Outcome::Unpacked(_), Outcome::Refused(why)) => Some(format!("{name} unpacks it: {why}")),
        (Outcome::Unpacked(expected), Outcome::Unpacked(found)) => expected
            .difference(found, Depth::All { since })
            .map(|what| format!("differs from {name}: {what}")),
    });
    let all: Option<Vec<_>> = differences.collect();
    all?.into_iter().next()
}

fn outcome(output: &Output, folder: &Path) -> Result<Outcome> {
    let is_done = output.status.success();
    Ok(if is_done { Outcome::Unpacked(Tree::read(folder)?) } else { Outcome::Refused(last_line(output)) })
}

fn gnu(folder: &ItemFolder, item: &Item) -> Result<Outcome> {
    let folder = folder.folder("gnu")?;
    let options = ["--numeric-owner", "--same-owner", "--acls", "--xattrs", "--xattrs-include=*", "-xpf"]
        .map(AsRef::as_ref);
    let places = [item.shipped.as_os_str(), "-C".as_ref(), folder.as_os_str()];
    outcome(&judged("tar", &[&options[..], &places].concat())?, &folder)
}

fn bsd(folder: &ItemFolder, item: &Item) -> Result<Outcome> {
    let folder = folder.folder("bsd")?;
    let options = ["--numeric-owner", "--same-owner", "--acls", "--xattrs", "-xpf"].map(AsRef::as_ref);
    let places = [item.shipped.as_os_str(), "-C".as_ref(), folder.as_os_str()];
    outcome(&judged("bsdtar", &[&options[..], &places].concat())?, &folder)
}

fn built(folder: &ItemFolder, item: &Item) -> Result<Outcome> {
    let image = folder.path("built.img")?;
    let args: [&OsStr; 5] =
        ["build".as_ref(), "-q".as_ref(), image.as_os_str(), "--from".as_ref(), item.shipped.as_os_str()];
    seen(&folder.obento(&args)?, folder, &image)
}

fn imported(folder: &ItemFolder, item: &Item) -> Result<Outcome> {
    let image = folder.path("imported.img")?;
    let made = folder.obento(&["mkfs".as_ref(), "-q".as_ref(), image.as_os_str(), SIZE.as_ref()])?;
    if !made.status.success() {
        return Ok(Outcome::Refused(last_line(&made)));
    }
    let mut root = image.as_os_str().to_owned();
    root.push(":/");
    let output = folder.obento(&["import".as_ref(), &root, item.shipped.as_os_str()])?;
    seen(&output, folder, &image)
}

/// Returns the tree of an image, as the kernel shows it, after a successful command.
fn seen(output: &Output, folder: &ItemFolder, image: &Path) -> Result<Outcome> {
    if !output.status.success() {
        return Ok(Outcome::Refused(last_line(output)));
    }
    let folder = folder.folder("seen")?;
    let _mount = Mount::new(image, &folder, &["-o", "ro"])?;
    Ok(Outcome::Unpacked(Tree::read(&folder)?))
}
