//! Writes the lines of the log from a thread of its own, so that a reader that has stopped never stops the server.
//!
//! Lines wait in a bounded queue; what finds it full is lost and counted, and the count is written as soon as lines go out again.
//! Called by `log`.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Most lines and bytes that wait to be written.
const LINES: usize = 8192;
const BYTES: usize = 32 << 20;

/// Lines of the log of this process that were lost.
static LOST: OnceLock<Arc<AtomicU64>> = OnceLock::new();

/// Hands lines over. A write is one whole line and never waits.
#[derive(Debug, Clone)]
pub struct LogWriter {
    queue: SyncSender<Message>,
    waiting_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Everything before is written.
    Written(SyncSender<()>),
}

/// How many lines of the process's log were lost so far.
#[must_use]
pub fn lost_lines() -> u64 {
    LOST.get().map_or(0, |lost| lost.load(Ordering::Relaxed))
}

impl LogWriter {
    /// The log of this process, on standard error. `report`: the line that tells of so many lost ones.
    pub fn to_stderr(report: impl Fn(u64) -> String + Send + 'static) -> io::Result<Self> {
        let writer = Self::new(io::stderr(), report)?;
        // Only the first log of a process is counted in its metrics.
        let _ = LOST.set(Arc::clone(&writer.lost));
        Ok(writer)
    }

    fn new(
        sink: impl Write + Send + 'static,
        report: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, messages) = sync_channel(LINES);
        let writer = LogWriter { queue, waiting_bytes: Arc::default(), lost: Arc::default() };
        let (waiting_bytes, lost) = (Arc::clone(&writer.waiting_bytes), Arc::clone(&writer.lost));
        let write = move || write_all(sink, &messages, &waiting_bytes, &lost, report);
        thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(writer)
    }

    /// Writes a last line and waits, no longer than `limit`, until everything is out.
    pub fn finish(mut self, line: &str, limit: Duration) {
        if !line.is_empty() {
            // It never fails.
            let _ = self.write_all(line.as_bytes());
        }
        let (written, all) = sync_channel(1);
        if self.queue.try_send(Message::Written(written)).is_ok() {
            let _ = all.recv_timeout(limit);
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let waiting = self.waiting_bytes.fetch_add(line.len(), Ordering::Relaxed);
        let full = waiting + line.len() > BYTES;
        if full || self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            self.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread: ends with the last writer. A sink that fails costs the lines it did not take, nothing else.
fn write_all(
    mut sink: impl Write,
    messages: &Receiver<Message>,
    waiting_bytes: &AtomicUsize,
    lost: &AtomicU64,
    report: impl Fn(u64) -> String,
) {
    let mut reported = 0;
    for message in messages {
        match message {
            Message::Line(line) => {
                let _ = sink.write_all(&line);
                waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                let now = lost.load(Ordering::Relaxed);
                if now > reported {
                    let _ = sink.write_all(report(now - reported).as_bytes());
                    reported = now;
                }
            }
            Message::Written(done) => {
                let _ = sink.flush();
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Takes a line only when told to.
    struct Slow {
        go: Receiver<()>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv();
            self.taken.lock().unwrap().extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (LogWriter, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (tell, go) = channel();
        let taken = Arc::<Mutex<Vec<u8>>>::default();
        let sink = Slow { go, taken: Arc::clone(&taken) };
        (LogWriter::new(sink, |lost| format!("{lost} lost\n")).unwrap(), tell, taken)
    }

    #[test]
    fn a_blocked_reader_costs_lines_that_are_counted_and_nothing_else() {
        let (mut writer, tell, taken) = slow();
        let lines = LINES + 100;
        for number in 0..lines {
            writer.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let lost = writer.lost.load(Ordering::Relaxed);
        // One line may be in the hands of the thread.
        assert!((99..=100).contains(&lost), "{lost}");
        // The reader is back, for good.
        drop(tell);
        while writer.waiting_bytes.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        writer.finish("the end\n", Duration::from_secs(30));
        let text = String::from_utf8(taken.lock().unwrap().clone()).unwrap();
        assert!(text.contains(&format!("{lost} lost\n")) && text.ends_with("the end\n"));
        assert_eq!(text.lines().filter(|line| line.starts_with("line ")).count() as u64, lines as u64 - lost);
    }

    #[test]
    fn large_lines_are_bounded_in_bytes() {
        let (mut writer, _tell, _) = slow();
        let line = vec![b'x'; BYTES / 4];
        for _ in 0..8 {
            writer.write_all(&line).unwrap();
        }
        assert!(writer.lost.load(Ordering::Relaxed) >= 4);
        writer.finish("never read\n", Duration::from_millis(10));
    }
}
