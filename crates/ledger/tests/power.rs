//! Power cuts on a real file system: ext4 on a disk that logs every write, and images of that disk as a power cut at any moment may leave it.
//!
//! `qemu-storage-daemon` logs what reaches the disk, in order and with its flushes. An image is everything up to a flush and any part of what
//! follows it, some of it torn. Each is mounted, and the ledger on it must have what it had acknowledged before that flush.
//!
//! Needs root, `qemu-storage-daemon` with FUSE, `losetup`, `mount` and `mkfs.ext4`. Where that is missing it says so and checks nothing.
#![allow(clippy::unwrap_used)]

mod fixtures;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_domain::event::EventId;
use sluice_domain::random::Random;
use sluice_ledger::{Acceptance, Inspector, Ledger, LedgerOptions, NewRevision};

use fixtures::{START, event, root_key};

const DISK_MIB: u64 = 80;
const EVENTS: u64 = 600;
const IMAGES: &str = "SLUICE_POWER_IMAGES";
const SECTOR: usize = 512;

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program} {}: {}", arguments.join(" "), text(&output.stderr)))
    }
}

/// A file as a block device, mounted.
struct Mounted {
    device: String,
    at: PathBuf,
}

impl Mounted {
    fn new(image: &Path, at: &Path, make: bool) -> Result<Mounted, String> {
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()])?;
        let mounted = Mounted { device, at: at.to_owned() };
        if make {
            run("mkfs.ext4", &["-q", "-J", "size=4", &mounted.device])?;
        }
        run("mount", &[&mounted.device, at.to_str().unwrap()])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &[self.at.to_str().unwrap()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// The process that logs.
struct Logging(Child);

impl Logging {
    fn start(place: &Path) -> Result<Logging, String> {
        let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
        File::create(path("disk")).unwrap().set_len(DISK_MIB << 20).unwrap();
        File::create(path("log")).unwrap();
        File::create(path("export")).unwrap();
        let child = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &format!("driver=file,node-name=disk,filename={}", path("disk"))])
            .args(["--blockdev", &format!("driver=file,node-name=log,filename={}", path("log"))])
            .args(["--blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=log,log-super-update-interval=1"])
            .args(["--export", &format!("type=fuse,id=e,node-name=logged,mountpoint={},writable=on", path("export"))])
            .stderr(File::create(path("messages")).unwrap())
            .spawn()
            .map_err(|error| format!("qemu-storage-daemon: {error}"))?;
        let mut logging = Logging(child);
        let give_up = Instant::now() + Duration::from_secs(10);
        while std::fs::metadata(path("export")).map_or(0, |found| found.len()) == 0 {
            if Instant::now() > give_up || logging.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(std::fs::read_to_string(path("messages")).unwrap_or_default());
            }
            std::thread::yield_now();
        }
        Ok(logging)
    }

    /// Lets it write its log to the end.
    fn stop(mut self) {
        let _ = run("kill", &[&self.0.id().to_string()]);
        let _ = self.0.wait();
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One thing that reached the disk.
struct Entry {
    at: usize,
    bytes: Vec<u8>,
    flushes: bool,
    discards: Option<usize>,
    /// Where it ends in the log.
    logged_to: u64,
}

impl Entry {
    fn apply(&self, disk: &mut [u8]) {
        match self.discards {
            Some(length) => disk[self.at..self.at + length].fill(0),
            None => disk[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes),
        }
    }

    /// Any part of it.
    fn apply_some(&self, disk: &mut [u8], random: &mut Random) {
        match random.below(3) {
            0 => {}
            1 => self.apply(disk),
            _ => {
                for (n, sector) in self.bytes.chunks(SECTOR).enumerate() {
                    if random.chance(0.5) {
                        let at = self.at + n * SECTOR;
                        disk[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
    }
}

/// Reads the log: a sector about all of it, then for each entry a sector about it and its data.
fn read_log(path: &Path) -> Vec<Entry> {
    let mut log = Vec::new();
    File::open(path).unwrap().read_to_end(&mut log).unwrap();
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!(number(0), 0x006a_7366_7773_6872, "the log's mark");
    let (count, size) = (number(16), u32::from_le_bytes(log[24..28].try_into().unwrap()) as usize);
    let mut at = size;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (place, sectors, flags) = (number(at) as usize, number(at + 8) as usize, number(at + 16));
        let (length, discards) = (sectors * size, flags & 4 != 0);
        at += size;
        let bytes = if discards { vec![] } else { log[at..at + length].to_vec() };
        at += bytes.len();
        entries.push(Entry {
            at: place * size,
            bytes,
            flushes: flags & 1 != 0,
            discards: discards.then_some(length),
            logged_to: at as u64,
        });
    }
    entries
}

/// What was acknowledged, its name, and how far the log was by then.
type Acknowledged = Vec<(u64, EventId, u64)>;

fn options() -> LedgerOptions {
    let few = LedgerOptions {
        recent_keys_max: Some(64),
        wal_pages_max: Some(200),
        ..LedgerOptions::quiet(Arc::new(|| START))
    };
    few.with_root_key(root_key())
}

fn revision() -> NewRevision {
    NewRevision { hash: "r1".into(), files: "[]".into(), actor: "ann".into(), reason: String::new(), at: START }
}

async fn work(data: &Path, log: &Path) -> Acknowledged {
    let ledger = Ledger::open(data, options()).unwrap();
    ledger.activate_revision(revision()).await.unwrap();
    let mut acknowledged = Vec::new();
    for n in 0..EVENTS {
        let Acceptance::Accepted(accepted) = ledger.accept(event(&format!("key {n}"))).await.unwrap() else {
            panic!("key {n} is a repeat");
        };
        acknowledged.push((n, accepted.id, log.metadata().unwrap().len()));
    }
    ledger.close().await;
    acknowledged
}

async fn check(data: &Path, acknowledged: &[(u64, EventId, u64)]) {
    if acknowledged.is_empty() && !Ledger::exists_in(data) {
        return;
    }
    let ledger = Ledger::open(data, options()).unwrap();
    let repeats = acknowledged.iter().map(|(n, ..)| event(&format!("key {n}"))).collect();
    for (repeat, (n, id, _)) in ledger.accept_all(repeats).await.unwrap().iter().zip(acknowledged) {
        match repeat {
            Acceptance::Duplicate(repeat) => assert_eq!(repeat.id, *id),
            _ => panic!("key {n} was acknowledged and is gone"),
        }
    }
    ledger.activate_revision(revision()).await.unwrap();
    assert_eq!(Inspector::open(data).unwrap().verify(|_, _| {}).unwrap().broken, []);
    let file = rusqlite::Connection::open(data.join("ledger.db")).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    drop(file);
    ledger.close().await;
}

#[test]
fn every_crash_image_contains_the_acknowledged_events() {
    // In memory where that is possible: what counts is what the log says was flushed, not how long it took.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mount = place.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let log = place.path().join("log");
    let prepared = Logging::start(place.path())
        .and_then(|logging| Ok((Mounted::new(&place.path().join("export"), &mount, true)?, logging)));
    let (mounted, logging) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return println!("NOT CHECKED: no disk that logs its writes can be had here: {why}"),
    };
    let acknowledged = runtime.block_on(work(&mount.join("data"), &log));
    drop(mounted);
    logging.stop();

    let entries = read_log(&log);
    let first = acknowledged[0].2;
    let flushes: Vec<usize> = (0..entries.len()).filter(|n| entries[*n].flushes).collect();
    let images: usize = std::env::var(IMAGES).ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    let mut random = Random::seeded(0xB10C);
    // Most of them while events were accepted, some before.
    let work_begins = flushes.iter().position(|n| entries[*n].logged_to >= first).unwrap();
    let mut moments: Vec<usize> = (0..images)
        .map(|n| {
            let from = if n % 10 == 0 { work_begins / 2 } else { work_begins };
            from + random.below((flushes.len() - from) as u64) as usize
        })
        .collect();
    moments.sort_unstable();
    let mut disk = vec![0; (DISK_MIB << 20) as usize];
    let (mut applied, mut torn, mut checked) = (0, 0, 0);
    for moment in moments {
        let flush = flushes[moment];
        entries[applied..=flush].iter().for_each(|entry| entry.apply(&mut disk));
        applied = flush + 1;
        let next = flushes.get(moment + 1).copied().unwrap_or(entries.len());
        let mut found = disk.clone();
        for entry in &entries[applied..next] {
            entry.apply_some(&mut found, &mut random);
            torn += 1;
        }
        let image = place.path().join("image");
        File::create(&image).unwrap().write_all(&found).unwrap();
        let kept = acknowledged.partition_point(|(_, _, logged)| *logged <= entries[flush].logged_to);
        let mounted = Mounted::new(&image, &mount, false).unwrap_or_else(|why| panic!("flush {moment}: {why}"));
        runtime.block_on(check(&mount.join("data"), &acknowledged[..kept]));
        drop(mounted);
        checked += kept;
    }
    println!(
        "{images} images of {} writes and {} flushes; {torn} writes kept in part; {checked} acknowledgements looked for",
        entries.len(),
        flushes.len()
    );
    assert!(checked > 0 && torn > 0);
}
