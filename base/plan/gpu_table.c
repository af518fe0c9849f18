/* Peaks are those of dense products; where a data sheet gives the peak with sparsity, the half of it. fp32: without TF32, which
 * the trainer does not use. Memory as sold: 80 GB are 80e9 bytes. NVLink: half of the figure for both directions; PCIe: 16 lanes,
 * in one direction.
 *
 *   a100   NVIDIA A100 Tensor Core GPU data sheet (2021): 312 and 19.5 TFLOP/s, 1,555 or 2,039 GB/s, NVLink 600 GB/s
 *   h100   NVIDIA H100 Tensor Core GPU data sheet (2023): SXM 989 and 67 TFLOP/s, 3.35 TB/s, NVLink 900 GB/s; PCIe 756 and 51
 *          TFLOP/s, 2 TB/s, PCIe 5.0
 *   h200   NVIDIA H200 Tensor Core GPU data sheet (2024): as H100 SXM, 141 GB, 4.8 TB/s
 *   b200   NVIDIA HGX B200, an eighth of eight (2024): 2.25 PFLOP/s, 75 TFLOP/s, 180 GB, 7.7 TB/s, NVLink 1.8 TB/s
 *   l40s   NVIDIA L40S data sheet (2023): 362 and 91.6 TFLOP/s, 48 GB, 864 GB/s, PCIe 4.0
 *   a10    NVIDIA A10 data sheet (2021): 125 and 31.2 TFLOP/s, 24 GB, 600 GB/s, PCIe 4.0
 *   4090   NVIDIA Ada GPU architecture, white paper (2022), appendix A: 165.2 and 82.6 TFLOP/s, 24 GB, 1,008 GB/s, PCIe 4.0 */
#include "base/plan/gpu_table.h"

#include <stddef.h>
#include <string.h>

const struct gpu_figures gpu_table[] = {
    {"a100-40", "A100 SXM, 40 GB", 312e12, 19.5e12, 40e9, 1555e9, 300e9},
    {"a100-80", "A100 SXM, 80 GB", 312e12, 19.5e12, 80e9, 2039e9, 300e9},
    {"h100-sxm", "H100 SXM, 80 GB", 989e12, 67e12, 80e9, 3350e9, 450e9},
    {"h100-pcie", "H100 PCIe, 80 GB", 756e12, 51e12, 80e9, 2000e9, 64e9},
    {"h200", "H200 SXM, 141 GB", 989e12, 67e12, 141e9, 4800e9, 450e9},
    {"b200", "B200 SXM, 180 GB", 2250e12, 75e12, 180e9, 7700e9, 900e9},
    {"l40s", "L40S, 48 GB", 362e12, 91.6e12, 48e9, 864e9, 32e9},
    {"a10", "A10, 24 GB", 125e12, 31.2e12, 24e9, 600e9, 32e9},
    {"rtx4090", "GeForce RTX 4090, 24 GB", 165.2e12, 82.6e12, 24e9, 1008e9, 32e9},
    {0},
};

const struct gpu_figures *gpu_find(const char *name)
{
    for (const struct gpu_figures *g = gpu_table; g->name; g++)
        if (strcmp(g->name, name) == 0)
            return g;
    return NULL;
}
