//! The installed kernel and its modules.
//!
//! Source: modules.dep(5) and modules.softdep as depmod(8) writes them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::is_program;
use crate::types::Type;
use crate::types::needs::Need;

/// The path of the kernel of Debian's package `user-mode-linux`.
const PROGRAM: &str = "/usr/bin/linux.uml";
/// The environment variable that names another kernel.
const CHOICE: &str = "OBENTO_LINUX";
/// The path of its modules: one folder for each version.
const MODULES: &str = "/usr/lib/uml/modules";

/// Whether a kernel exists for this processor: Debian has one for Intel's architectures only.
pub(crate) const RUNS_HERE: bool = cfg!(target_arch = "x86_64");

/// The command that installs kernel and modules.
pub const INSTALL: &str = if RUNS_HERE {
    "apt-get install user-mode-linux"
} else {
    "it is not available here, since it runs only on x86-64"
};

/// A kernel that runs as a process.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The program.
    pub program: PathBuf,
    modules: PathBuf,
}

/// Returns the numbers of a version: 6.1.100 is later than 6.1.9.
fn version(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// Returns the version that `program` prints.
fn version_of(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().ok().filter(|said| said.status.success())?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.split_whitespace().next().map(str::to_owned)
}

/// Returns the folder of `versions` for the kernel's `own` version, or the last one if that is absent.
fn fitting(versions: Vec<PathBuf>, own: Option<&str>) -> Option<PathBuf> {
    let is_own = |path: &&PathBuf| own.is_some_and(|own| path.file_name() == Some(own.as_ref()));
    let found = versions.iter().find(is_own).cloned();
    found.or_else(|| versions.into_iter().max_by_key(|path| version(path)))
}

impl Kernel {
    /// Returns the installed kernel, if this machine can run it.
    pub fn installed() -> Option<Self> {
        if !RUNS_HERE {
            return None;
        }
        let program = Self::program()?;
        let versions: Vec<_> =
            fs::read_dir(MODULES).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        // The program is asked only if a choice exists.
        let own = if versions.len() > 1 { version_of(&program) } else { None };
        Some(Self { program, modules: fitting(versions, own.as_deref())? })
    }

    fn program() -> Option<PathBuf> {
        let program = std::env::var_os(CHOICE).map_or_else(|| PathBuf::from(PROGRAM), PathBuf::from);
        // The program is started from another directory.
        program.canonicalize().ok().filter(|program| is_program(program))
    }

    /// Returns whether the environment variable names a file that is not a kernel.
    pub fn is_chosen_wrongly() -> bool {
        std::env::var_os(CHOICE).is_some() && Self::program().is_none()
    }

    /// Returns the options that the kernel was built with; `None` if the program does not print them.
    pub fn config(&self) -> Option<Config> {
        let mut command = Command::new(&self.program);
        command.arg("--showconfig").stdin(Stdio::null()).stderr(Stdio::null());
        let printed = command.output().ok().filter(|printed| printed.status.success())?;
        String::from_utf8(printed.stdout).ok().map(Config)
    }

    /// Returns whether the kernel supports the file system `name`, built in or as a module.
    pub fn knows(&self, name: &str) -> bool {
        let lists =
            ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(self.modules.join(list)));
        let mut lines = lists.iter().flatten().flat_map(|list| list.lines());
        // The types whose modules have other names.
        let module = match name {
            "iso9660" => "isofs",
            "vxfs" => "freevxfs",
            name => name,
        };
        lines.any(|line| is(line.split(':').next().unwrap_or_default(), module))
    }

    /// Returns the files of `module` and of all modules that it needs, in the order of loading. Empty if the module is built in.
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

/// The options that a kernel was built with.
#[derive(Clone, Debug)]
pub struct Config(String);

impl Config {
    /// Returns whether `option` is built in or a module.
    pub fn has(&self, option: &str) -> bool {
        let mut values = self.0.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('='));
        values.any(|value| matches!(value, "y" | "m"))
    }

    /// Returns the parts of `kind` that a kernel with these options does not show.
    pub fn lacks(&self, kind: &Type) -> impl Iterator<Item = Need> {
        kind.needs.iter().copied().filter(|need| !self.has(need.option))
    }
}

struct Needs {
    hard: String,
    soft: String,
}

impl Needs {
    /// Appends the modules that `module` needs, and then `module`, to `order`.
    fn visit(&self, module: &str, seen: &mut HashSet<String>, order: &mut Vec<String>) {
        if !seen.insert(module.to_owned()) {
            return;
        }
        let Some((path, needed)) =
            self.hard.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| is(path, module))
        else {
            // A request for an algorithm by its name is served by a module of that name, with a suffix for the implementation.
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

/// Returns whether the file at `path` is `module`: `-` and `_` are equal.
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
    fn modules_are_those_of_the_kernels_own_version_where_they_are_there() {
        let versions = || ["/m/6.1.9", "/m/6.1.100"].map(PathBuf::from).to_vec();
        assert_eq!(fitting(versions(), Some("6.1.9")), Some("/m/6.1.9".into()));
        assert_eq!(fitting(versions(), Some("6.12.1")), Some("/m/6.1.100".into()));
        assert_eq!(fitting(versions(), None), Some("/m/6.1.100".into()));
        assert_eq!(fitting(Vec::new(), Some("6.1.9")), None);
    }

    #[test]
    fn an_option_is_set_only_if_it_is_built_in_or_a_module() {
        let config =
            Config("CONFIG_A=y\nCONFIG_AB=m\n# CONFIG_C is not set\nCONFIG_D=\"y\"\nCONFIG_E=n\n".to_owned());
        let options = ["CONFIG_A", "CONFIG_AB", "CONFIG_C", "CONFIG_D", "CONFIG_E", "CONFIG_"];
        assert_eq!(options.map(|option| config.has(option)), [true, true, false, false, false, false]);
    }

    #[test]
    fn a_kernel_is_asked_for_its_version() {
        assert_eq!(version_of(Path::new("/bin/false")), None);
        assert_eq!(version_of(Path::new("/nowhere/linux.uml")), None);
        // The output begins with the name of the program.
        assert_eq!(version_of(Path::new("/bin/cat")).as_deref(), Some("cat"));
    }

    #[test]
    fn versions_are_distinguished_by_their_numbers() {
        let all = ["/m/6.1.9", "/m/6.1.100", "/m/6.1.99-rc1"];
        assert_eq!(all.into_iter().max_by_key(|path| version(Path::new(path))), Some("/m/6.1.100"));
    }
}
