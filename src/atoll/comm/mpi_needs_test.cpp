#include "atoll/comm/mpi_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "atoll/base/error.h"

namespace atl::comm {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MpiNeeds : public ::testing::Test {
 protected:
  MpiNeeds() {
    std::string name = fs::temp_directory_path() / "atoll-mpi-needs-XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  ~MpiNeeds() override {
    for (const char* name : {"SLURM_STEP_ID", "PMI_RANK", "PMIX_RANK"}) ::unsetenv(name);
    fs::remove_all(dir_);
  }
  static std::string refusal(const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  }
  static std::string refusal_of(const MpiPlaces& places) {
    return refusal([&] { check_mpi_places(places); });
  }
  fs::path dir_;
};

TEST_F(MpiNeeds, APlaceThatServesLeavesNothing) {
  EXPECT_EQ(refusal_of({.session = dir_ / "session", .memory = dir_}), "");
  EXPECT_TRUE(fs::is_empty(dir_ / "session"));
}

TEST_F(MpiNeeds, APlaceThatCannotBeWrittenToIsNamed) {
  std::ofstream(dir_ / "file") << "x";
  const fs::path session = dir_ / "file" / "session";
  EXPECT_THAT(refusal_of({.session = session, .memory = {}}),
              AllOf(HasSubstr("Open MPI needs " + session.string()), HasSubstr("cannot be written"),
                    HasSubstr("TMPDIR"), HasSubstr("--backend=gloo")));
}

// /proc has no room at all.
TEST_F(MpiNeeds, APlaceWithoutRoomIsNamed) {
  EXPECT_THAT(refusal_of({.session = dir_, .memory = "/proc"}),
              AllOf(HasSubstr("Open MPI needs /proc, which has 0"), HasSubstr("--shm-size"),
                    HasSubstr("--backend=gloo")));
}

TEST_F(MpiNeeds, APmiThatOpenMpiDoesNotKnowIsRefused) {
  const auto why = [&] { return refusal([&] { check_mpi_pmi(dir_); }); };
  for (const char* folder : {"openmpi", "openmpi/lib/openmpi3"}) {
    fs::create_directories(dir_ / folder);
    std::ofstream(dir_ / folder / "mca_pmix_isolated.so") << "x";
    EXPECT_EQ(why(), "") << "nobody has started it with a PMI";
    ::setenv("SLURM_STEP_ID", "0", 1);
    ::setenv("PMI_RANK", "1", 1);
    EXPECT_THAT(why(), AllOf(HasSubstr((dir_ / folder).string()), HasSubstr("srun --mpi=pmix"),
                             HasSubstr("--backend=gloo")));
    ::setenv("PMIX_RANK", "1", 1);
    EXPECT_EQ(why(), "");
    ::unsetenv("PMIX_RANK");
    std::ofstream(dir_ / folder / "mca_pmix_s2.so") << "x";
    EXPECT_EQ(why(), "");
    fs::remove_all(dir_ / "openmpi");
    ::unsetenv("SLURM_STEP_ID");
    ::unsetenv("PMI_RANK");
  }
}

}  // namespace
}  // namespace atl::comm
