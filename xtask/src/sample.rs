//! The sample image: a GPT disk with one ext4 partition, small enough for the repository.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::packages;

const TREE: &str = r#"
mkdir -p tree/etc tree/home/bento/box tree/usr/bin tree/var/log
cd tree
printf 'root:x:0:0:root:/root:/bin/sh\nbento:x:1000:1000:Bento:/home/bento:/bin/sh\n' > etc/passwd
printf 'root:x:0:\nbento:x:1000:\n' > etc/group
printf 'NAME="obento sample"\nID=obento\n' > etc/os-release
printf 'Hello from inside an ext4 partition of a GPT disk in a zstd file.\n' > home/bento/hello.txt
ln -s ../../etc/os-release home/bento/release
ln home/bento/hello.txt home/bento/box/second-name.txt
printf '#!/bin/sh\necho obento\n' > usr/bin/obento-hello
chmod 4755 usr/bin/obento-hello
truncate -s 64M var/log/sparse.log
printf 'an island' | dd of=var/log/sparse.log bs=1 seek=33554432 conv=notrunc status=none
for n in $(seq -w 1 300); do printf 'compartment %s\n' "$n" > "home/bento/box/compartment-$n"; done
chown -R 1000:1000 home/bento
setfattr -n user.note -v 'packed with care' home/bento/hello.txt
setfacl -m u:1000:rw etc/os-release
"#;

const DISK: &str = r#"
truncate -s 14M part.img
mke2fs -q -t ext4 -L sample -U 0b3470a5-0000-4000-8000-0be270000001 -N 512 -d tree part.img
truncate -s 16M disk.img
{ echo 'label: gpt'; echo 'label-id: 0B3470A5-0000-4000-8000-0BE270000000'
  echo 'start=2048, size=28672, type=L, name="sample root"'; } | sfdisk -q disk.img
dd if=part.img of=disk.img bs=1M seek=1 conv=notrunc,sparse status=none
zstd -q -19 disk.img
"#;

/// Generates `samples/disk.img.zst`.
pub fn run(shell: &Shell) -> Result<()> {
    packages::ensure(
        shell,
        &[
            ("/sbin/sfdisk", "fdisk"),
            ("/usr/bin/setfattr", "attr"),
            ("/usr/bin/setfacl", "acl"),
            ("/usr/bin/zstd", "zstd"),
            ("/sbin/mkfs.fat", "dosfstools"),
            ("/usr/bin/mcopy", "mtools"),
            ("/usr/bin/bzip2", "bzip2"),
            ("/usr/bin/xz", "xz-utils"),
            ("/usr/bin/qemu-img", "qemu-utils"),
            ("/usr/bin/img2simg", "android-sdk-libsparse-utils"),
        ],
    )?;
    let folder = shell.create_temp_dir()?;
    {
        let _inside = shell.push_dir(folder.path());
        cmd!(shell, "sh -euc {TREE}").run()?;
        cmd!(shell, "sh -euc {DISK}").run()?;
    }
    shell.create_dir("samples")?;
    shell.copy_file(folder.path().join("disk.img.zst"), "samples/disk.img.zst")?;
    Ok(())
}

/// A volume with 1 KiB blocks, without checksums, with every kind of structure and a dirty journal.
const FUZZ_SEED: &str = r#"
truncate -s 4M volume.img
mke2fs -q -t ext4 -b 1024 -N 128 -J size=1 -O ^extent,^64bit,^metadata_csum,^resize_inode,ea_inode,large_dir volume.img
mkdir mnt
mount -o loop volume.img mnt
for n in 0 11 13 270; do printf y | dd of=mnt/indirect bs=1024 seek=$n conv=notrunc status=none; done
umount mnt
debugfs -w -R 'feature extent inline_data' volume.img
mount -o loop volume.img mnt
mkdir mnt/indexed mnt/plain
for n in $(seq 1 60); do ln mnt/seed mnt/indexed/a-rather-long-name-for-an-entry-$n 2>/dev/null || { touch mnt/seed; ln mnt/seed mnt/indexed/a-rather-long-name-for-an-entry-$n; }; done
for n in 1 2 3; do echo $n > mnt/plain/file-$n; done
for n in $(seq 0 2 160); do printf x | dd of=mnt/fragmented bs=1024 seek=$n conv=notrunc status=none; done
ln -s "$(printf 'x%.0s' $(seq 200))" mnt/slow
ln -s short mnt/fast
mkfifo mnt/fifo; mknod mnt/null c 1 3
for n in $(seq 1 9); do setfattr -n user.number-$n -v value-$n mnt/plain/file-1; done
setfattr -n user.large -v "$(printf 'v%.0s' $(seq 3000))" mnt/plain/file-2
setfacl -m u:1:r mnt/plain/file-3
sync -f mnt
echo again > mnt/plain/file-1; mv mnt/plain/file-3 mnt/moved; rm mnt/slow
sync mnt/moved mnt/plain
cp --sparse=always volume.img dirty.img
umount mnt
mv dirty.img volume.img
zstd -q -19 volume.img
"#;

/// A FAT12 volume with few clusters, long and short names, a directory of two clusters and a fragmented file; and the
/// same volume, compressed.
const FUZZ_SEED_FAT: &str = r#"
truncate -s 256K fat.img
mkfs.fat -F 12 -s 1 -r 32 -i 1234abcd --invariant -n SEED fat.img
mkdir -p tree/deep/er
for n in $(seq 1 12); do printf "%600s" $n > "tree/a long name of a file $n"; done
printf x > tree/deep/SHORT.TXT; printf x > tree/deep/er/lower.txt; : > tree/empty
export LC_ALL=C.UTF-8 TZ=UTC MTOOLS_SKIP_CHECK=1
find tree -exec touch -d '2021-03-04 05:06:08' {} +
mcopy -s -m -i fat.img tree ::/
mdel -i fat.img '::/tree/a long name of a file 2' '::/tree/a long name of a file 4'
printf "%3000s" pieces > pieces; touch -d '2021-03-04 05:06:08' pieces
mcopy -m -i fat.img pieces ::/
gzip -9nk fat.img
xz -9k fat.img
lzma -9k fat.img
bzip2 -9k fat.img
qemu-img convert -c -O qcow2 -o cluster_size=512 fat.img fat.qcow2
qemu-img convert -O qcow2 -o cluster_size=512,compat=0.10 fat.img old.qcow2
zstd -q -19 fat.qcow2 old.qcow2
qemu-img convert -O vpc -o subformat=fixed,force_size=on fat.img fixed.vhd
qemu-img convert -O vpc -o subformat=dynamic,force_size=on fat.img fat.vhd
qemu-img convert -O vhdx -o block_size=1M,log_size=1M fat.img fat.vhdx
qemu-img create -q -f vhdx -o block_size=1M,log_size=1M before.vhdx 3M
cp before.vhdx after.vhdx
qemu-io -f vhdx -c "write -P 5 0 64k" -c "write -P 6 2M 4k" after.vhdx
qemu-img convert -O vmdk -o subformat=monolithicSparse fat.img fat.vmdk
qemu-img convert -O vmdk -o subformat=streamOptimized fat.img stream.vmdk
qemu-img convert -O vdi fat.img fat.vdi
img2simg fat.img fat.simg
zstd -q -19 fixed.vhd fat.vhd fat.vhdx before.vhdx after.vhdx fat.vmdk stream.vmdk fat.vdi fat.simg
zstd -q -19 fat.img
"#;

/// A volume that Linux did not unmount, with fast commits and an orphan.
const FUZZ_SEED_FAST: &str = r#"
truncate -s 4M fast.img
mke2fs -q -t ext4 -b 1024 -N 64 -J size=1 -O fast_commit,orphan_file,^64bit,^metadata_csum,^resize_inode fast.img
mkdir -p mnt
mount -o loop fast.img mnt
mkdir mnt/dir; printf one > mnt/file; printf two > mnt/dir/old; sync
printf more >> mnt/file; sync mnt/file
printf new > mnt/dir/new; sync mnt/dir/new
ln mnt/file mnt/dir/link; sync mnt/file
mv mnt/dir/old mnt/dir/moved; sync mnt/dir/moved
rm mnt/dir/link; truncate -s 1 mnt/file; sync mnt/file
exec 3< mnt/dir/new; rm mnt/dir/new; truncate -s 5000 mnt/file; sync mnt/file
cp --sparse=always fast.img dirty.img
exec 3<&-
umount mnt
mv dirty.img fast.img
zstd -q -19 fast.img
"#;

/// A volume with an external journal, which Linux did not unmount.
const FUZZ_SEED_OUTSIDE: &str = r#"
truncate -s 2M log.img; truncate -s 2M outside.img
mke2fs -q -F -b 1024 -O journal_dev log.img
log=$(losetup -f --show log.img)
mke2fs -q -F -t ext4 -b 1024 -N 32 -O ^64bit,^metadata_csum,^resize_inode -J device=$log outside.img
mkdir -p mnt; mount -o loop,journal_path=$log outside.img mnt
for n in $(seq 12); do printf $n > mnt/file-$n; sync mnt/file-$n; done
rm mnt/file-3; sync -f mnt
cp --sparse=always outside.img dirty.img
cp $log dirty-log.img
umount mnt; losetup -d $log
mv dirty.img outside.img; mv dirty-log.img log.img
zstd -q -19 outside.img log.img
"#;

/// Archives of each format, with all fields of the headers in use.
const FUZZ_SEED_TAR: &str = r#"
mkdir -p files/dir && cd files
printf hello > file; ln file dir/second; ln -s ../file dir/link; mkfifo fifo; mknod null c 1 3
truncate -s 200K sparse; for n in 0 60 120; do printf island | dd of=sparse bs=1K seek=$n conv=notrunc status=none; done
long=$(printf 'n%.0s' $(seq 120)); printf x > dir/$long; ln -s $long$long dir/long-link
setfattr -n user.note -v value file; setfacl -m u:1:rw,g:2:r file; setfacl -d -m u:3:r dir
find . -exec touch -h -d '2021-03-04 05:06:08.123456789' {} +
t="tar --sort=name --numeric-owner --owner=0 --group=0 -b1"
$t --format=ustar --exclude=long-link -cf ../ustar.tar file dir/second dir/link fifo null
$t --format=gnu -S -cf ../gnu.tar .
$t --format=pax --xattrs --acls --selinux -S -cf ../pax.tar .
$t --format=pax -S --sparse-version=0.0 -cf ../sparse-0.0.tar sparse
$t --format=pax -S --sparse-version=0.1 -cf ../sparse-0.1.tar sparse
cd .. && zstd -q -19 *.tar
"#;

/// Generates the seeds of the fuzz targets, `crates/fuzzing/seed` (requires root).
pub fn fuzz_seed(shell: &Shell) -> Result<()> {
    let folder = shell.create_temp_dir()?;
    {
        let _inside = shell.push_dir(folder.path());
        for script in [FUZZ_SEED, FUZZ_SEED_FAT, FUZZ_SEED_FAST, FUZZ_SEED_OUTSIDE, FUZZ_SEED_TAR] {
            cmd!(shell, "sh -euc {script}").run()?;
        }
    }
    shell.create_dir("crates/fuzzing/seed")?;
    let made = shell.read_dir(folder.path())?;
    let ends = ["bz2", "gz", "lzma", "xz", "zst"];
    let is_seed =
        |file: &&PathBuf| file.extension().is_some_and(|end| ends.iter().any(|known| end == *known));
    made.iter().filter(is_seed).try_for_each(|file| Ok(shell.copy_file(file, "crates/fuzzing/seed/")?))
}
