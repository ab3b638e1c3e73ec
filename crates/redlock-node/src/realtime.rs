//! Asks the kernel to schedule a thread before all others, and to keep the memory of the process loaded.

use nix::{
    libc::MCL_ONFAULT,
    sys::mman::{MlockAllFlags, mlockall},
};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// A priority above every process without real-time scheduling, and below the threads of the kernel (50).
const PRIORITY: u8 = 10;

/// Sets SCHED_FIFO for the calling thread.
///
/// # Errors
/// Returns the reason and the capability to add.
pub fn schedule_first() -> Result<(), String> {
    let refused = |reason: String| {
        format!(
            "real-time scheduling is not permitted ({reason}): add the capability SYS_NICE; without it a freeze may be late \
             on a busy node"
        )
    };
    let priority = ThreadPriorityValue::try_from(PRIORITY).map_err(refused)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        policy,
    )
    .map_err(|reason| refused(format!("{reason:?}")))
}

/// Locks all memory of the process, now and later.
///
/// # Errors
/// Returns the reason and the capability to add.
pub fn lock_memory() -> Result<(), String> {
    lock(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
}

/// Locks the memory that the process has used, now and later. The runtime has a thread for each processor,
/// and their whole stacks, if loaded, would exceed the limit of a container.
///
/// # Errors
/// Returns the reason and the capability to add.
pub fn keep_used_memory() -> Result<(), String> {
    let on_fault = MlockAllFlags::from_bits_retain(MCL_ONFAULT);
    lock(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault)
}

fn lock(flags: MlockAllFlags) -> Result<(), String> {
    mlockall(flags).map_err(|errno| {
        format!("memory cannot be locked ({errno}): add the capability IPC_LOCK; without it a freeze may wait for a disk")
    })
}
