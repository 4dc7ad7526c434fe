//! The subcommands, one file each: clap parses `Args`, `run` executes them, and `PAGE` has what the help and the manual
//! page show beside the options.
//!
//! A new subcommand is a file, its `mod` line, and its line in the table below.

mod bench;
pub mod build;
mod cat;
mod chattr;
mod check;
mod chmod;
mod chown;
mod cmp;
mod complete;
mod completions;
mod convert;
mod cp;
mod df;
mod diff;
mod digest;
mod du;
mod exec;
mod export;
mod fallocate;
mod file;
mod find;
mod getfacl;
mod getfattr;
mod grep;
mod head;
mod help;
mod hexdump;
mod import;
mod info;
mod inspect;
mod ln;
mod ls;
mod lsattr;
mod man;
mod mkdir;
mod mkfs;
mod mknod;
mod mount;
mod mv;
mod part;
mod prov;
mod readlink;
mod recover;
mod resize;
mod rm;
mod rmdir;
mod setfacl;
mod setfattr;
pub mod shell;
mod stat;
mod sync;
mod tail;
mod touch;
mod tree;
mod trim;
mod truncate;
mod tune;
mod types;
mod umount;
mod undelete;
mod wc;
mod write;

pub use check::USAGE as CHECK_USAGE;
use clap::Subcommand;

use crate::context::Context;
use crate::help::page::Page;
use crate::output::Outcome;

/// Makes the parser, the dispatch and the overview of one table. Each line has the name, the variant with its arguments,
/// the function and the page. The groups and their commands have the order of the overview.
macro_rules! subcommands {
    (
        $($group:literal {
            $($(#[$attribute:meta])* $name:literal $variant:ident($args:ty) => $run:path, $page:path;)*
        })*
        hidden {
            $($hidden_name:literal $hidden:ident($hidden_args:ty) => $hidden_run:path;)*
        }
    ) => {
        /// The subcommands.
        #[derive(Subcommand, Debug)]
        pub enum Command {
            $($($(#[$attribute])* #[command(name = $name)] $variant($args),)*)*
            $(#[command(name = $hidden_name, hide = true)] $hidden($hidden_args),)*
        }

        impl Command {
            /// Runs the subcommand.
            pub fn run(self, context: &Context) -> Outcome {
                match self {
                    $($(Self::$variant(args) => $run(&args, context),)*)*
                    $(Self::$hidden(args) => $hidden_run(&args, context),)*
                }
            }
        }

        impl Command {
            /// Returns the exit code of the subcommand if standard output cannot be written.
            pub fn unwritten(&self) -> u8 {
                match self {
                    $($(Self::$variant(_) => $page.unwritten,)*)*
                    $(Self::$hidden(_) => 1,)*
                }
            }
        }

        /// The visible subcommands with their pages, in the groups and the order of the overview.
        pub const GROUPS: &[(&str, &[(&str, &Page)])] = &[$(($group, &[$(($name, &$page),)*]),)*];
    };
}

subcommands! {
    "Look" {
        "info" Info(info::Args) => info::run, info::PAGE;
        "types" Types(types::Args) => types::run, types::PAGE;
        "ls" Ls(ls::Args) => ls::run, ls::PAGE;
        "tree" Tree(tree::Args) => tree::run, tree::PAGE;
        "find" Find(find::Args) => find::run, find::PAGE;
        "grep" Grep(Box<grep::Args>) => grep::run, grep::PAGE;
        "cat" Cat(cat::Args) => cat::run, cat::PAGE;
        "head" Head(head::Args) => head::run, head::PAGE;
        "tail" Tail(tail::Args) => tail::run, tail::PAGE;
        "hexdump" Hexdump(hexdump::Args) => hexdump::run, hexdump::PAGE;
        "wc" Wc(wc::Args) => wc::run, wc::PAGE;
        "stat" Stat(stat::Args) => stat::run, stat::PAGE;
        "file" File(file::Args) => file::run, file::PAGE;
        "readlink" Readlink(readlink::Args) => readlink::run, readlink::PAGE;
        "du" Du(du::Args) => du::run, du::PAGE;
        "df" Df(df::Args) => df::run, df::PAGE;
        "diff" Diff(diff::Args) => diff::run, diff::PAGE;
        "cmp" Cmp(cmp::Args) => cmp::run, cmp::PAGE;
        /// Print or check SHA-256 checksums of files
        "sha256sum" Sha256sum(digest::Args) => digest::sha256, digest::SHA256_PAGE;
        /// Print or check SHA-512 checksums of files
        "sha512sum" Sha512sum(digest::Args) => digest::sha512, digest::SHA512_PAGE;
        /// Print or check SHA-1 checksums of files
        "sha1sum" Sha1sum(digest::Args) => digest::sha1, digest::SHA1_PAGE;
        /// Print or check MD5 checksums of files
        "md5sum" Md5sum(digest::Args) => digest::md5, digest::MD5_PAGE;
        /// Print or check BLAKE3 checksums of files
        "b3sum" B3sum(digest::Args) => digest::blake3, digest::B3_PAGE;
        "getfattr" Getfattr(getfattr::Args) => getfattr::run, getfattr::PAGE;
        "getfacl" Getfacl(getfacl::Args) => getfacl::run, getfacl::PAGE;
        "lsattr" Lsattr(lsattr::Args) => lsattr::run, lsattr::PAGE;
        "inspect" Inspect(inspect::Args) => inspect::run, inspect::PAGE;
        "prov" Prov(prov::Args) => prov::run, prov::PAGE;
    }
    "Extract" {
        "cp" Cp(cp::Args) => cp::run, cp::PAGE;
        "export" Export(export::Args) => export::run, export::PAGE;
        "recover" Recover(recover::Args) => recover::run, recover::PAGE;
        "undelete" Undelete(undelete::Args) => undelete::run, undelete::PAGE;
    }
    "Change" {
        "import" Import(import::Args) => import::run, import::PAGE;
        "mv" Mv(mv::Args) => mv::run, mv::PAGE;
        "ln" Ln(ln::Args) => ln::run, ln::PAGE;
        "rm" Rm(rm::Args) => rm::run, rm::PAGE;
        "mkdir" Mkdir(mkdir::Args) => mkdir::run, mkdir::PAGE;
        "rmdir" Rmdir(rmdir::Args) => rmdir::run, rmdir::PAGE;
        "touch" Touch(touch::Args) => touch::run, touch::PAGE;
        "write" Write(write::Args) => write::run, write::PAGE;
        "truncate" Truncate(truncate::Args) => truncate::run, truncate::PAGE;
        "fallocate" Fallocate(fallocate::Args) => fallocate::run, fallocate::PAGE;
        "mknod" Mknod(mknod::Args) => mknod::run, mknod::PAGE;
        "mkfifo" Mkfifo(mknod::FifoArgs) => mknod::run_fifo, mknod::FIFO_PAGE;
        "chmod" Chmod(chmod::Args) => chmod::run, chmod::PAGE;
        "chown" Chown(chown::Args) => chown::run, chown::PAGE;
        "chgrp" Chgrp(chown::GroupArgs) => chown::run_group, chown::GROUP_PAGE;
        "setfattr" Setfattr(setfattr::Args) => setfattr::run, setfattr::PAGE;
        "setfacl" Setfacl(setfacl::Args) => setfacl::run, setfacl::PAGE;
        "chattr" Chattr(chattr::Args) => chattr::run, chattr::PAGE;
        "exec" Exec(exec::Args) => exec::run, exec::PAGE;
        "edit" Edit(exec::EditArgs) => exec::run_edit, exec::EDIT_PAGE;
        "shell" Shell(shell::Args) => shell::run, shell::PAGE;
        "sync" Sync(sync::Args) => sync::run, sync::PAGE;
        "trim" Trim(trim::Args) => trim::run, trim::PAGE;
    }
    "Create" {
        "build" Build(Box<build::Args>) => build::run, build::PAGE;
        "convert" Convert(convert::Args) => convert::run, convert::PAGE;
        "mkfs" Mkfs(Box<mkfs::Args>) => mkfs::run, mkfs::PAGE;
        #[command(aliases = ["mkfs.vfat", "mkfs.msdos", "mkdosfs"])]
        "mkfs.fat" MkfsFat(Box<mkfs::fat::Args>) => mkfs::fat::run, mkfs::fat::PAGE;
        "mkfs.exfat" MkfsExFat(Box<mkfs::exfat::Args>) => mkfs::exfat::run, mkfs::exfat::PAGE;
    }
    "Disks" {
        "part" Part(part::Args) => part::run, part::PAGE;
        "resize" Resize(resize::Args) => resize::run, resize::PAGE;
        "tune" Tune(tune::Args) => tune::run, tune::PAGE;
    }
    "Check" {
        "check" Check(check::Args) => check::run, check::PAGE;
    }
    "Mount" {
        "mount" Mount(mount::Args) => mount::run, mount::PAGE;
        "umount" Umount(umount::Args) => umount::run, umount::PAGE;
    }
    "Measure" {
        "bench" Bench(Box<bench::Args>) => bench::run, bench::PAGE;
    }
    "Help" {
        "help" Help(help::Args) => help::run, help::PAGE;
        "man" Man(man::Args) => man::run, man::PAGE;
        "completions" Completions(completions::Args) => completions::run, completions::PAGE;
    }
    hidden {
        "complete" Complete(complete::Args) => complete::run;
    }
}
