//! The same commands by coreutils in a kernel's mount and by obento in an image. They leave the same tree, print the
//! same output, and have the same exit status.

use std::path::Path;
use std::process::Output;

use obento_testkit::oracle::{LoopMount, program};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// Two equal images, one of them mounted.
struct Pair {
    kernel: Disk,
    mount: LoopMount,
    ours: Disk,
}

impl Pair {
    fn new(ours: Option<Disk>) -> Option<Self> {
        if !require(&[Oracle::LoopMount, Oracle::Root]) {
            return None;
        }
        let (kernel, ours) = (Disk::new("16M", &[])?, ours?);
        let mount = LoopMount::new(&kernel.image(), "").unwrap();
        Some(Self { kernel, mount, ours })
    }

    /// Runs one line on both; `@/` is the root.
    fn line(&self, line: &str) {
        let root = format!("{}/", self.mount.path().display());
        if let Some(path) = line.strip_prefix("> ") {
            return self.write(&path.replace("@/", ""));
        }
        let words: Vec<_> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let with = |root: &str| words.iter().map(|word| word.replace("@/", root)).collect::<Vec<_>>();
        let theirs = with(&root);
        let expected = program(&theirs[0]).args(&theirs[1..]).output().unwrap();
        let found = self.ours.obento(&with("disk.img:/"));
        let said =
            |output: &Output, root: &str| text(&output.stdout).replace(root, "@/").replace("/usr/bin/", "");
        let context = format!("{line}\n{}{}", text(&expected.stderr), text(&found.stderr));
        assert_eq!(expected.status.success(), found.status.success(), "{context}");
        assert_eq!(expected.stderr.is_empty(), found.stderr.is_empty(), "{context}");
        let sorted = |text: String| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(said(&expected, &root)), sorted(said(&found, "disk.img:/")), "{context}");
        assert_eq!(tree_in(self.mount.path()), tree_of(&self.ours), "{context}");
    }

    /// A file of seven blocks, one of them zeros.
    fn write(&self, path: &str) {
        let block = |index: u32| vec![if index == 3 { 0 } else { 65 + index as u8 }; 4096];
        let data: Vec<u8> = (0..7).flat_map(block).collect();
        std::fs::write(self.mount.path().join(path), &data).unwrap();
        assert!(self.ours.obento_with(&["write", &format!("disk.img:/{path}")], &data).status.success());
    }

    /// Compares what the kernel shows of both images.
    fn finish(self) {
        let mount = LoopMount::new(&self.ours.image(), "ro").unwrap();
        assert_eq!(tree_in(self.mount.path()), tree_in(mount.path()));
        for judge in ["find . -type f -exec sha1sum {} +", "getfacl -R .", "getfattr -d -m - -R ."] {
            let (expected, found) = (judged(judge, self.mount.path()), judged(judge, mount.path()));
            assert_eq!(expected, found, "{judge}");
        }
        self.mount.unmount().unwrap();
        mount.unmount().unwrap();
        drop(self.kernel);
    }
}

/// Returns the sorted output of a command in a folder.
fn judged(command: &str, folder: &Path) -> Vec<String> {
    let mut words = command.split(' ');
    let output = program(words.next().unwrap()).args(words).current_dir(folder).output().unwrap();
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

const FORMAT: &str = "%P %y %m %U %G %s %n %l %Ts %As\\n";

fn tree_in(root: &Path) -> Vec<String> {
    tree(program("find").arg(root).args(["-printf", FORMAT]).output().unwrap())
}

fn tree_of(disk: &Disk) -> Vec<String> {
    tree(disk.obento(&["find", "disk.img:/", "-printf", FORMAT]))
}

/// Sorts the lines of a tree. Times of this year are those of the test, and sizes of directories depend on
/// the format.
fn tree(output: Output) -> Vec<String> {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let len = words.len();
        for time in &mut words[len - 2..] {
            if time.parse::<i64>().is_ok_and(|time| time > 1_600_000_000) {
                *time = "now";
            }
        }
        if words[1] == "d" {
            words[5] = "-";
        }
        words.join(" ")
    };
    let mut lines: Vec<_> = text(&output.stdout).lines().map(line).collect();
    lines.sort();
    lines
}

/// One line per command; `_` is a space within a word.
const SCRIPT: &str = "\
mkdir @/d
mkdir @/d
mkdir @/none/d
mkdir -p @/none/d/e
mkdir -p @/none/d/e
mkdir -pv @/none/d/e/f/g
mkdir -v -m 700 @/m @/n
mkdir -m u=rwx,go= @/s
mkdir -m 1777 @/tmp
mkdir -p -m 750 @/p/q
mkdir @/
mkdir @/d/.
touch @/f @/d/a @/d/b
touch @/none/x/y
touch -d 2001-02-03_04:05:06 @/f
touch -a -d @86400 @/f
touch -m -t 200001020304.05 @/f
touch -c @/missing
touch -r @/f @/d/a
touch -r @/f -d +1_day @/d/b
touch @/d
chmod 600 @/f
chmod -v u+x,g=u,o-rwx @/f
chmod -v u+x @/f
chmod -c 755 @/f @/d/a
chmod -R -v g+w,a+X @/d
chmod =rw @/d/b
chmod +t,u+s,g+s @/d
chmod 755 @/d
chmod 00755 @/d
chmod -x @/f
chmod --reference=@/d @/f
chmod 4711 @/missing
chown 1000 @/f
chown 2000:2100 @/d/a
chown -v 2001:2101 @/d/a
chown -v :2007 @/d/a
chown -v 2001 @/d/a
chown --from=5 9 @/d/a
chown --from=2001:2007 -v 2009 @/d/a
chown -R 2003:2004 @/d
chgrp 2012 @/f
chgrp -R -v 2005 @/d
chgrp -R -c 2006 @/d
chown nobodyknows @/f
chmod 4755 @/f
chown 5 @/f
ln @/f @/hard
ln @/f @/hard
ln -f @/d/a @/hard
ln -v @/f @/hard2
ln @/f @/d/b @/none
ln -s target @/link
ln -sv target @/link2
ln -s ../f @/d/link
ln -s target @/link
ln -sf other @/link
ln -sf .. @/d/up
ln -s d @/todir
ln -s x @/todir
ln -sfn y @/todir
ln -sT d @/d
ln -s -t @/n a b
ln -sr @/d/a @/none/d/rel
ln @/d @/dirlink
ln @/missing @/no
ln -P @/link @/hardsym
ln -L @/d/link @/hardfile
chown -h 77 @/link
chown 78 @/link
chown 78 @/d/link
mv @/f @/g
mv @/g @/d
mv -v @/d/g @/g
mv @/missing @/x
mv @/g @/g
mv @/d @/d/sub
mv @/none @/m @/n
mv -n @/g @/hard
mv -f @/g @/hard
mv @/hard @/missing/x
mv @/hard2 @/n/m
mv -T @/hard2 @/n/m
mv -T @/s @/p
mv -T @/s @/p/q
mv --exchange @/p/q @/hard2
mv -t @/n @/p/q
mv -u @/n/q @/hard2
mv @/hardsym @/hardfile
rm @/missing
rm -f @/missing
rm @/d
rm -d @/d
rm -v @/hardfile
rmdir @/n
mkdir -p @/r/s/t
rmdir -v @/r/s/t
rmdir @/missing
rmdir --ignore-fail-on-non-empty @/n
rmdir @/hard
rm -d @/tmp
truncate -s 5000 @/t
truncate -s +1K @/t
truncate -s <100 @/t
truncate -s %4096 @/t
truncate -r @/t @/t2
truncate -s -1 -r @/t @/t3
truncate -c -s 1 @/t4
truncate -o -s 3 @/t5
truncate -s 1 @/n
rm -rv @/n
rm -r @/d @/none
rm -rf @/lost+found @/p @/missing
";

/// Space, devices, attributes, lists and flags.
const SCRIPT_OF_ATTRIBUTES: &str = "\
mkdir @/dev @/d
mknod @/dev/null c 1 3
mknod -m 600 @/dev/sda b 8 0x10
mknod @/dev/tty u 5 010
mknod @/dev/pipe p
mknod @/dev/null c 1 3
mkfifo @/fifo @/fifo2
mkfifo -m u=rw,go= @/fifo3
mkfifo @/fifo
mkfifo @/no/fifo
> @/data
fallocate -l 10000 @/a
fallocate -n -l 1MiB @/a
fallocate -o 20K -l 4096 @/a
fallocate -p -o 5000 -l 9000 @/data
fallocate -d @/data
> @/data2
fallocate -z -o 100 -l 5000 @/data2
fallocate -z -n -o 20K -l 40K @/data2
> @/data4
fallocate -d @/data4
setfattr -n user.x -v hello @/data
setfattr -n user.b -v 0sZm9vYmFy @/data
setfattr -n user.h -v 0x00ff @/data
setfattr -n user.q -v \"a\\011b\" @/data
setfattr -n trusted.t -v 1 @/d
setfattr -n user.x @/d
setfattr -x user.h @/data
setfattr -x user.none @/data
setfattr -n bad -v 1 @/data
setfattr -n user.x -v 1 @/missing
getfacl -pc @/data
setfacl -m u:2000:rw @/data
getfacl -pcn @/data
setfacl -m g:2001:rx,m::r @/data
getfacl -pcn @/data
getfacl -pcne @/data
setfacl -n -m u:2002:rwx @/data
setfacl --mask -m m::r,g:2003:w @/data
setfacl -x u:2000 @/data
chmod 640 @/data
getfacl -pcn @/data
setfacl -x m @/data
setfacl -b @/data
getfacl -pc @/data
setfacl -m d:u:2000:rX,u:2000:rX @/d
getfacl -pcn @/d
getfacl -pcdn @/d
setfacl -d -m g:2004:7 @/d
mkdir @/d/sub
touch @/d/sub/file
mkdir -m 700 @/d/sub/private
mkfifo @/d/pipe
getfacl -pcnR @/d
setfacl -R -m u:2005:rX @/d
setfacl -k @/d
setfacl -m d:u:1:r @/data
setfacl -m u:nobodyknows:r @/data
setfacl --set u::rwx,g::r,o::- @/d
setfacl --set u::rwx,g::r @/data
setfacl -m u:7:r @/missing
lsattr -d @/d
chattr +d @/data
chattr +A-S @/data
chattr +AS @/data
lsattr @/data
chattr -A @/data
chattr =de @/data
lsattr @/data
chattr +i @/data
rm -f @/data
touch @/data
mv @/data @/x
ln @/data @/x
setfattr -n user.x -v 1 @/data
lsattr @/data
chattr -i @/data
chattr +a @/data2
truncate -s 0 @/data2
rm @/d/pipe
chattr -R -a @/data2 @/d
chattr -R +d @/d
lsattr -R @/d
lsattr @/d
chattr +q @/d
";

/// Replaced and preserved files.
const SCRIPT_OF_BACKUPS: &str = "\
> @/a
touch @/b @/c @/b2 @/c2 @/b3
mkdir @/d @/e @/full @/full/x
mv -b @/b @/a
mv -vb @/c @/a
mv --backup=numbered @/b2 @/a
mv -vb @/c2 @/a
mv -b -S .old @/b3 @/a
mv --suffix=.old --backup=simple @/a.~1~ @/a
mv -bT @/d @/e
mv -bT @/e @/full
mv -bT @/full @/a
mv --backup=none @/a~ @/a.~2~
touch @/b @/c
ln -b @/b @/c
ln -s -b x @/c
ln -sf --backup=numbered y @/c
ln -sf --backup=off z @/c
ln -sb x @/a.~2~ @/none
ln -b @/c @/c
cp -b @/a.~2~ @/b
cp --backup=t @/a.~2~ @/b
cp -b @/c @/b
cp -rb @/a @/b
cp -b @/none @/b
";

fn same_script(script: &str, ours: Option<Disk>) {
    let Some(pair) = Pair::new(ours) else { return };
    script.lines().for_each(|line| pair.line(line));
    pair.finish();
}

#[test]
fn a_script_of_coreutils_does_the_same_in_an_image() {
    same_script(SCRIPT, Disk::new("16M", &[]));
}

#[test]
fn a_script_of_coreutils_does_the_same_in_an_image_on_a_tmpfs() {
    same_script(SCRIPT, Disk::on_tmpfs("16M"));
}

#[test]
fn a_script_of_coreutils_does_the_same_in_an_ext2_image() {
    same_script(SCRIPT, Disk::new("16M", &["-O", "^has_journal,^extents,^64bit,^dir_index", "-b", "1024"]));
}

#[test]
fn replaced_files_are_backed_up_as_by_coreutils() {
    same_script(SCRIPT_OF_BACKUPS, Disk::new("16M", &[]));
}

/// Other programs that read attributes.
fn has_attribute_tools() -> bool {
    require(&["setfacl", "getfacl", "setfattr", "getfattr", "chattr", "fallocate"].map(Oracle::Program))
}

#[test]
fn a_script_of_space_attributes_lists_and_flags_does_the_same_in_an_image() {
    if has_attribute_tools() {
        same_script(SCRIPT_OF_ATTRIBUTES, Disk::new("16M", &[]));
    }
}

#[test]
fn a_script_of_space_attributes_lists_and_flags_does_the_same_in_an_image_on_a_tmpfs() {
    if has_attribute_tools() {
        same_script(SCRIPT_OF_ATTRIBUTES, Disk::on_tmpfs("16M"));
    }
}
