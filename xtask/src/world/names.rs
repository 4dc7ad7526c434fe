//! NTFS: the names of files and of their alternate data streams, which libfsntfs lists.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::run::{ItemFolder, judged};

/// Files of the format itself. They are in the root, and obento does not show them.
const SYSTEM: [&str; 11] = [
    "$AttrDef", "$BadClus", "$Bitmap", "$Boot", "$Extend", "$LogFile", "$MFT", "$MFTMirr", "$Secure",
    "$UpCase", "$Volume",
];

/// Returns the first name that only one of obento and libfsntfs finds. A stream is `FILE:STREAM`.
pub fn difference(folder: &ItemFolder, image: &Path) -> Result<Option<String>> {
    let listed = judged("fsntfsinfo", &["-H".as_ref(), image.as_os_str()])?;
    if !listed.status.success() {
        return Ok(None);
    }
    let theirs = of_libfsntfs(&String::from_utf8_lossy(&listed.stdout));
    let mut root = image.as_os_str().to_owned();
    root.push(":/");
    let run = |program: &str, options: &[&str]| {
        let options = options.iter().map(AsRef::as_ref);
        let args: Vec<_> = [program.as_ref(), root.as_os_str()].into_iter().chain(options).collect();
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&folder.obento(&args)?.stdout).into_owned())
    };
    let files = run("find", &["-printf", "%P\n"])?;
    let streams = run("getfattr", &["-R", "-m", "^user[.]"])?;
    let ours: BTreeSet<String> = files
        .lines()
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .chain(streams_of(&streams))
        .collect();
    let one_sided = theirs.symmetric_difference(&ours);
    let count = one_sided.clone().count();
    Ok(one_sided.clone().next().map(|name| {
        let by = if ours.contains(name) { "obento" } else { "libfsntfs" };
        format!("only {by} finds `{}`; {} more", name.replace('|', "/"), count - 1)
    }))
}

/// Returns the names in the output of `fsntfsinfo -H`: lines such as `\DIRECTORY\FILE:STREAM`.
fn of_libfsntfs(output: &str) -> BTreeSet<String> {
    let paths = output.lines().filter_map(|line| line.strip_prefix('\\'));
    let is_shown = |path: &&str| {
        let first = path.split(['\\', ':']).next().unwrap_or_default();
        !path.is_empty() && !SYSTEM.contains(&first)
    };
    paths.filter(is_shown).map(|path| path.replace('\\', "/")).collect()
}

/// Returns the streams in the output of getfattr(1): attributes `user.STREAM` after a line `# file: FILE`.
fn streams_of(output: &str) -> impl Iterator<Item = String> {
    let mut file = "";
    output.lines().filter_map(move |line| {
        if let Some(path) = line.strip_prefix("# file: ") {
            file = path;
        }
        let stream = line.strip_prefix("user.")?;
        // The root has no name.
        Some(format!("{}:{stream}", if file == "." { "" } else { file }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_programs_have_one_form() {
        let listed = "fsntfsinfo 1\n\nFile system hierarchy:\n\\$MFT\n\\$Secure:$SDS\n\\a b\n\\a b\\c:d\n\n";
        let expected = ["a b", "a b/c:d"].map(str::to_owned);
        assert_eq!(of_libfsntfs(listed), BTreeSet::from(expected));
        let attributes = "# file: a b/c\nuser.d\nuser.e.f\n\n# file: .\nuser.g\n";
        assert_eq!(streams_of(attributes).collect::<Vec<_>>(), ["a b/c:d", "a b/c:e.f", ":g"]);
    }
}
