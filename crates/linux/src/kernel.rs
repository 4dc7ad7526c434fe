//! The kernel that is installed, and its modules.
//!
//! Source: modules.dep(5) and modules.softdep as depmod(8) writes them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where Debian's package `user-mode-linux` puts the kernel.
const PROGRAM: &str = "/usr/bin/linux.uml";
/// The variable that names another.
const CHOICE: &str = "OBENTO_LINUX";
/// Where it puts the modules: a folder a version.
const MODULES: &str = "/usr/lib/uml/modules";

/// What installs both.
pub const INSTALL: &str = "apt-get install user-mode-linux";

/// A kernel that runs as a process.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The program.
    pub program: PathBuf,
    modules: PathBuf,
}

/// The numbers of a version: 6.1.100 comes after 6.1.9.
fn version(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

impl Kernel {
    /// The one that is installed, if this machine can run it.
    pub fn installed() -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let program = std::env::var_os(CHOICE).map_or_else(|| PathBuf::from(PROGRAM), PathBuf::from);
        let versions = fs::read_dir(MODULES).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let modules = versions.max_by_key(|path| version(path))?;
        program.exists().then_some(Self { program, modules })
    }

    /// Whether it has the file system `name`, in itself or as a module.
    pub fn knows(&self, name: &str) -> bool {
        let lists =
            ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(self.modules.join(list)));
        let mut lines = lists.iter().flatten().flat_map(|list| list.lines());
        // The one whose module has another name.
        let module = if name == "iso9660" { "isofs" } else { name };
        lines.any(|line| is(line.split(':').next().unwrap_or_default(), module))
    }

    /// The files of `module` and of all that it needs, in the order in which they are loaded. None of them where it is
    /// part of the kernel.
    pub fn modules_for(&self, module: &str) -> io::Result<Vec<PathBuf>> {
        let needs = Needs {
            hard: fs::read_to_string(self.modules.join("modules.dep"))?,
            soft: fs::read_to_string(self.modules.join("modules.softdep"))?,
        };
        let (mut order, mut seen) = (Vec::new(), HashSet::new());
        needs.visit(module, &mut seen, &mut order);
        Ok(order.into_iter().map(|path| self.modules.join(path)).collect())
    }
}

struct Needs {
    hard: String,
    soft: String,
}

impl Needs {
    /// Puts what `module` needs and then itself into `order`.
    fn visit(&self, module: &str, seen: &mut HashSet<String>, order: &mut Vec<String>) {
        if !seen.insert(module.to_owned()) {
            return;
        }
        let Some((path, needed)) =
            self.hard.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| is(path, module))
        else {
            // What is asked for by the name of an algorithm is a module of the same name with its way of computing.
            let generic = format!("{module}_generic");
            if !module.ends_with("_generic") {
                self.visit(&generic, seen, order);
            }
            return;
        };
        let soft = self.soft.lines().filter_map(|line| line.strip_prefix("softdep ")?.split_once(' '));
        for (_, list) in soft.filter(|(name, _)| *name == module) {
            let list = list.split(" post:").next().unwrap_or_default();
            list.split_whitespace()
                .filter(|word| *word != "pre:")
                .for_each(|word| self.visit(word, seen, order));
        }
        for needed in needed.split_whitespace().rev() {
            self.visit(&name_of(needed), seen, order);
        }
        order.push(path.to_owned());
    }
}

/// Whether the file at `path` is `module`: `-` and `_` are the same.
fn is(path: &str, module: &str) -> bool {
    name_of(path) == module.replace('-', "_")
}

fn name_of(path: &str) -> String {
    let stem = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    stem.split('.').next().unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart_by_their_numbers() {
        let all = ["/m/6.1.9", "/m/6.1.100", "/m/6.1.99-rc1"];
        assert_eq!(all.into_iter().max_by_key(|path| version(Path::new(path))), Some("/m/6.1.100"));
    }
}
