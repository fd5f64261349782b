//! How much memory a device has, which wgpu does not tell but the APIs below it do.
//!
//! Vulkan: the heaps that are local to the device, with `VK_EXT_memory_budget` for what this program may use of them
//! (Vulkan specification, "Device Memory"). Metal: the recommended working set.

/// Bytes of a device's memory: free, where that is known, and all.
pub(super) type Known = (Option<usize>, usize);

/// The memory of a device, where it is known.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn of_adapter(adapter: &wgpu::Adapter) -> Option<Known> {
    use ash::{ext::memory_budget, vk};
    use wgpu::hal::api::Vulkan;

    // SAFETY: the guard lives until the function returns, and nothing is destroyed through it.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }?;
    let (device, capabilities) = (hal.raw_physical_device(), hal.physical_device_capabilities());
    let shared = hal.shared_instance();
    if shared.instance_api_version().min(capabilities.properties().api_version) < vk::API_VERSION_1_1 {
        return None;
    }
    let has_budget = capabilities.supports_extension(memory_budget::NAME);
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    if has_budget {
        properties = properties.push_next(&mut budget);
    }
    // SAFETY: the device is of this instance, both are of Vulkan 1.1, and the chain has a struct that the device knows.
    unsafe { shared.raw_instance().get_physical_device_memory_properties2(device, &mut properties) };
    let properties = properties.memory_properties;
    let (mut free, mut total) = (0u64, 0u64);
    for (i, heap) in properties.memory_heaps_as_slice().iter().enumerate() {
        if heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) {
            total += heap.size;
            free += budget.heap_budget[i].saturating_sub(budget.heap_usage[i]).min(heap.size);
        }
    }
    known(has_budget.then_some(free), total)
}

/// The memory of a device, where it is known.
#[cfg(target_vendor = "apple")]
pub(super) fn of_adapter(adapter: &wgpu::Adapter) -> Option<Known> {
    use objc2_metal::MTLDevice as _;
    use wgpu::hal::api::Metal;

    // SAFETY: the guard lives until the function returns, and nothing is destroyed through it.
    let hal = unsafe { adapter.as_hal::<Metal>() }?;
    let device = hal.raw_device();
    let total = device.recommendedMaxWorkingSetSize();
    known(Some(total.saturating_sub(device.currentAllocatedSize() as u64)), total)
}

fn known(free: Option<u64>, total: u64) -> Option<Known> {
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (total > 0).then(|| (free.map(bytes), bytes(total)))
}
