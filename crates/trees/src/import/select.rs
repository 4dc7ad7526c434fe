//! Selects the members to unpack, and their paths in the target.

use obento_base::{Name, NameBuf};
use obento_open::pattern::Pattern;

use super::problem::MemberProblem;

/// The selection of members.
pub(crate) struct Selection<'a> {
    pub strip: usize,
    pub exclude: &'a [Vec<u8>],
}

impl Selection<'_> {
    /// Returns the names that lead to a member, which are empty for the target itself. Returns `None` if the
    /// member is excluded.
    pub fn path(&self, path: &[u8]) -> Result<Option<Vec<NameBuf>>, MemberProblem> {
        if self.is_excluded(path) { Ok(None) } else { self.original(path) }
    }

    /// Returns the names that lead to the target of a hard link, even if it is excluded.
    pub fn original(&self, path: &[u8]) -> Result<Option<Vec<NameBuf>>, MemberProblem> {
        let mut names = Vec::new();
        for part in components(path) {
            if part == b".." {
                return Err(MemberProblem::LeadsUp);
            }
            names.push(Name::new(part).map_err(|_| MemberProblem::NoPath)?.to_buf());
        }
        if self.strip == 0 {
            return Ok(Some(names));
        }
        Ok((names.len() > self.strip).then(|| names.split_off(self.strip)))
    }

    /// Returns whether a pattern excludes `path`.
    pub fn is_excluded(&self, path: &[u8]) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        let parts: Vec<_> = components(path).collect();
        self.exclude.iter().any(|pattern| {
            let pattern: Vec<_> = components(pattern).map(Pattern::of_shell).collect();
            !pattern.is_empty() && parts.windows(pattern.len()).any(|window| fits(&pattern, window))
        })
    }
}

fn fits(pattern: &[Pattern], names: &[&[u8]]) -> bool {
    pattern.iter().zip(names).all(|(pattern, name)| pattern.matches_in_shell(name))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(selection: &Selection<'_>, path: &str) -> Result<Option<String>, MemberProblem> {
        let names = selection.path(path.as_bytes())?;
        Ok(names.map(|names| {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name.as_bytes())).collect();
            names.join("/")
        }))
    }

    #[test]
    fn paths_start_at_the_target_and_never_lead_up() {
        let all = Selection { strip: 0, exclude: &[] };
        assert_eq!(path(&all, "/etc//./passwd"), Ok(Some("etc/passwd".into())));
        assert_eq!(path(&all, "./"), Ok(Some(String::new())));
        for bad in ["..", "a/../b", "/..", "a/.."] {
            assert_eq!(path(&all, bad), Err(MemberProblem::LeadsUp), "{bad}");
        }
        assert_eq!(path(&all, &"x".repeat(2000)), Err(MemberProblem::NoPath));
    }

    #[test]
    fn components_are_stripped_and_patterns_omit_matching_entries_with_their_contents() {
        let exclude = [b"*.o".to_vec(), b"var/cache".to_vec(), b".git".to_vec()];
        let some = Selection { strip: 1, exclude: &exclude };
        assert_eq!(path(&some, "top/a/b"), Ok(Some("a/b".into())));
        assert_eq!(path(&some, "top/"), Ok(None));
        for left_out in ["top/a.o", "top/x.o/y", "top/var/cache/y", "top/.git", "var/cache"] {
            assert_eq!(path(&some, left_out), Ok(None), "{left_out}");
        }
        assert_eq!(path(&some, "top/var/cached"), Ok(Some("var/cached".into())));
    }
}
