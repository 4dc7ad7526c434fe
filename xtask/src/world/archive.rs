//! Archives: what `build` and `import` make of one, beside GNU tar and bsdtar.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::harvest::Item;
use super::run::{Ground, Mount, judged, last_line};
use super::tree::{Depth, Tree};

/// Bytes of the volume into which an archive is imported.
const SIZE: &str = "256M";

/// What became of an archive.
enum Outcome {
    Unpacked(Tree),
    /// Refused, or unpacked in part: what was said.
    Refused(String),
}

/// Returns the aspects in which obento agrees with neither judge.
pub fn compare(ground: &Ground, item: &Item) -> Result<Vec<(&'static str, String)>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().try_into()?;
    let judges = [gnu(ground, item)?, bsd(ground, item)?];
    let found = [("build", built(ground, item)?), ("import", imported(ground, item)?)];
    let of_aspect = |(aspect, outcome)| Some((aspect, difference(&judges, &outcome, since)?));
    Ok(found.into_iter().filter_map(of_aspect).collect())
}

/// The difference from the judge that is nearest: none if any judge agrees.
fn difference(judges: &[Outcome; 2], found: &Outcome, since: i64) -> Option<String> {
    let differences = judges.iter().zip(["GNU tar", "bsdtar"]).map(|(judge, name)| match (judge, found) {
        (Outcome::Refused(_), Outcome::Refused(_)) => None,
        (Outcome::Refused(why), Outcome::Unpacked(_)) => Some(format!("accepted, but {name} says: {why}")),
        (Outcome::Unpacked(_), Outcome::Refused(why)) => Some(format!("{name} unpacks it: {why}")),
        (Outcome::Unpacked(expected), Outcome::Unpacked(found)) => {
            expected.difference(found, Depth::All { since }).map(|what| format!("not as by {name}: {what}"))
        }
    });
    let all: Option<Vec<_>> = differences.collect();
    all?.into_iter().next()
}

fn outcome(output: &Output, folder: &Path) -> Result<Outcome> {
    let is_done = output.status.success();
    Ok(if is_done { Outcome::Unpacked(Tree::read(folder)?) } else { Outcome::Refused(last_line(output)) })
}

fn gnu(ground: &Ground, item: &Item) -> Result<Outcome> {
    let folder = ground.folder("gnu")?;
    let options = ["--numeric-owner", "--same-owner", "--acls", "--xattrs", "--xattrs-include=*", "-xpf"]
        .map(AsRef::as_ref);
    let places = [item.shipped.as_os_str(), "-C".as_ref(), folder.as_os_str()];
    outcome(&judged("tar", &[&options[..], &places].concat())?, &folder)
}

fn bsd(ground: &Ground, item: &Item) -> Result<Outcome> {
    let folder = ground.folder("bsd")?;
    let options = ["--numeric-owner", "--same-owner", "--acls", "--xattrs", "-xpf"].map(AsRef::as_ref);
    let places = [item.shipped.as_os_str(), "-C".as_ref(), folder.as_os_str()];
    outcome(&judged("bsdtar", &[&options[..], &places].concat())?, &folder)
}

fn built(ground: &Ground, item: &Item) -> Result<Outcome> {
    let image = ground.path("built.img")?;
    let args: [&OsStr; 5] =
        ["build".as_ref(), "-q".as_ref(), image.as_os_str(), "--from".as_ref(), item.shipped.as_os_str()];
    seen(&ground.obento(&args)?, ground, &image)
}

fn imported(ground: &Ground, item: &Item) -> Result<Outcome> {
    let image = ground.path("imported.img")?;
    let made = ground.obento(&["mkfs".as_ref(), "-q".as_ref(), image.as_os_str(), SIZE.as_ref()])?;
    if !made.status.success() {
        return Ok(Outcome::Refused(last_line(&made)));
    }
    let mut root = image.as_os_str().to_owned();
    root.push(":/");
    let output = ground.obento(&["import".as_ref(), &root, item.shipped.as_os_str()])?;
    seen(&output, ground, &image)
}

/// The tree in an image that a command made, as the kernel shows it.
fn seen(output: &Output, ground: &Ground, image: &Path) -> Result<Outcome> {
    if !output.status.success() {
        return Ok(Outcome::Refused(last_line(output)));
    }
    let folder = ground.folder("seen")?;
    let _mount = Mount::new(image, &folder, &["-o", "ro"])?;
    Ok(Outcome::Unpacked(Tree::read(&folder)?))
}
