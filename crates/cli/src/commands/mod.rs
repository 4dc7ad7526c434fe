//! The subcommands, one file each: clap parses `Args`, and `run` executes them.

mod bench;
mod build;
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
use crate::output::Outcome;

/// The subcommands. `help::pages` groups them for the overview.
#[derive(Subcommand, Debug)]
pub enum Command {
    Ls(ls::Args),
    Cat(cat::Args),
    Grep(Box<grep::Args>),
    Head(head::Args),
    Tail(tail::Args),
    Wc(wc::Args),
    Hexdump(hexdump::Args),
    File(file::Args),
    Cmp(cmp::Args),
    /// Print or check SHA-256 checksums of files
    Sha256sum(digest::Args),
    /// Print or check SHA-512 checksums of files
    Sha512sum(digest::Args),
    /// Print or check SHA-1 checksums of files
    Sha1sum(digest::Args),
    /// Print or check MD5 checksums of files
    Md5sum(digest::Args),
    /// Print or check BLAKE3 checksums of files
    B3sum(digest::Args),
    Stat(stat::Args),
    Tree(tree::Args),
    Cp(cp::Args),
    Mkfs(Box<mkfs::Args>),
    #[command(name = "mkfs.fat", aliases = ["mkfs.vfat", "mkfs.msdos", "mkdosfs"])]
    MkfsFat(Box<mkfs::fat::Args>),
    #[command(name = "mkfs.exfat")]
    MkfsExFat(Box<mkfs::exfat::Args>),
    Build(Box<build::Args>),
    Convert(convert::Args),
    Part(part::Args),
    Resize(resize::Args),
    Tune(tune::Args),
    Check(check::Args),
    Bench(Box<bench::Args>),
    Mkdir(mkdir::Args),
    Rmdir(rmdir::Args),
    Rm(rm::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Touch(touch::Args),
    Chmod(chmod::Args),
    Chown(chown::Args),
    Chgrp(chown::GroupArgs),
    Truncate(truncate::Args),
    Write(write::Args),
    Fallocate(fallocate::Args),
    Mknod(mknod::Args),
    Mkfifo(mknod::FifoArgs),
    Exec(exec::Args),
    Edit(exec::EditArgs),
    Sync(sync::Args),
    Trim(trim::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Find(find::Args),
    Du(du::Args),
    Df(df::Args),
    Readlink(readlink::Args),
    Getfattr(getfattr::Args),
    Setfattr(setfattr::Args),
    Getfacl(getfacl::Args),
    Setfacl(setfacl::Args),
    Lsattr(lsattr::Args),
    Chattr(chattr::Args),
    Diff(diff::Args),
    Export(export::Args),
    Prov(prov::Args),
    Recover(recover::Args),
    Undelete(undelete::Args),
    Import(import::Args),
    Info(info::Args),
    Types(types::Args),
    Inspect(inspect::Args),
    Shell(shell::Args),
    Help(help::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    Complete(complete::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Outcome {
        match self {
            Self::Ls(args) => ls::run(args, context),
            Self::Cat(args) => cat::run(&args, context),
            Self::Grep(args) => grep::run(&args, context),
            Self::Head(args) => head::run(&args, context),
            Self::Tail(args) => tail::run(&args, context),
            Self::Wc(args) => wc::run(&args, context),
            Self::File(args) => file::run(&args, context),
            Self::Hexdump(args) => hexdump::run(&args, context),
            Self::Cmp(args) => cmp::run(&args, context),
            Self::Sha256sum(args) => digest::run(digest::Algorithm::Sha256, &args, context),
            Self::Sha512sum(args) => digest::run(digest::Algorithm::Sha512, &args, context),
            Self::Sha1sum(args) => digest::run(digest::Algorithm::Sha1, &args, context),
            Self::Md5sum(args) => digest::run(digest::Algorithm::Md5, &args, context),
            Self::B3sum(args) => digest::run(digest::Algorithm::Blake3, &args, context),
            Self::Stat(args) => stat::run(&args, context),
            Self::Tree(args) => tree::run(&args, context),
            Self::Cp(args) => cp::run(&args, context),
            Self::Mkfs(args) => mkfs::run(&args, context),
            Self::MkfsFat(args) => mkfs::fat::run(&args, context),
            Self::MkfsExFat(args) => mkfs::exfat::run(&args, context),
            Self::Build(args) => build::run(&args, context),
            Self::Convert(args) => convert::run(&args, context),
            Self::Part(args) => part::run(&args, context),
            Self::Resize(args) => resize::run(&args, context),
            Self::Tune(args) => tune::run(&args, context),
            Self::Check(args) => check::run(&args, context),
            Self::Bench(args) => bench::run(*args, context),
            Self::Mkdir(args) => mkdir::run(&args, context),
            Self::Rmdir(args) => rmdir::run(&args, context),
            Self::Rm(args) => rm::run(&args, context),
            Self::Mv(args) => mv::run(&args, context),
            Self::Ln(args) => ln::run(&args, context),
            Self::Touch(args) => touch::run(&args, context),
            Self::Chmod(args) => chmod::run(&args, context),
            Self::Chown(args) => chown::run(&args, context),
            Self::Chgrp(args) => chown::run_group(&args, context),
            Self::Truncate(args) => truncate::run(&args, context),
            Self::Write(args) => write::run(&args, context),
            Self::Fallocate(args) => fallocate::run(&args, context),
            Self::Mknod(args) => mknod::run(&args, context),
            Self::Mkfifo(args) => mknod::run_fifo(&args, context),
            Self::Exec(args) => exec::run(&args, context),
            Self::Edit(args) => exec::run_edit(&args, context),
            Self::Sync(args) => sync::run(&args, context),
            Self::Trim(args) => trim::run(&args, context),
            Self::Mount(args) => mount::run(&args, context),
            Self::Umount(args) => umount::run(&args, context),
            Self::Find(args) => find::run(&args, context),
            Self::Du(args) => du::run(&args, context),
            Self::Df(args) => df::run(&args, context),
            Self::Readlink(args) => readlink::run(&args, context),
            Self::Getfattr(args) => getfattr::run(&args, context),
            Self::Setfattr(args) => setfattr::run(&args, context),
            Self::Getfacl(args) => getfacl::run(&args, context),
            Self::Setfacl(args) => setfacl::run(&args, context),
            Self::Lsattr(args) => lsattr::run(&args, context),
            Self::Chattr(args) => chattr::run(&args, context),
            Self::Diff(args) => diff::run(&args, context),
            Self::Undelete(args) => undelete::run(&args, context),
            Self::Recover(args) => recover::run(&args, context),
            Self::Export(args) => export::run(&args, context),
            Self::Prov(args) => prov::run(&args, context),
            Self::Import(args) => import::run(&args, context),
            Self::Types(args) => types::run(&args, context),
            Self::Info(args) => info::run(&args, context),
            Self::Inspect(args) => inspect::run(&args, context),
            Self::Shell(args) => shell::run(&args, context),
            Self::Help(args) => help::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
            Self::Complete(args) => complete::run(&args, context),
        }
    }
}
