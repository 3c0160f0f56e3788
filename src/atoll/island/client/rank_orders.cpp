#include "atoll/island/client/rank_orders.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "atoll/base/error.h"
#include "atoll/island/protocol/messages.h"

namespace atl::island {

namespace {

using nlohmann::json;

// CBOR keeps every bit of a number.
std::string to_bytes(const json& value) {
  const std::vector<std::uint8_t> bytes = json::to_cbor(value);
  return {bytes.begin(), bytes.end()};
}

json to_json(const StateHash& hash) {
  return {hash.high, hash.low};
}
StateHash hash_from(const json& value) {
  return {value.at(0).get<std::uint64_t>(), value.at(1).get<std::uint64_t>()};
}

json bytes_json(const std::string& text) {
  return json::binary({text.begin(), text.end()});
}
std::string text_from(const json& value) {
  const auto& bytes = value.get_binary();
  return {bytes.begin(), bytes.end()};
}

template <typename Fn>
auto read(const std::string& bytes, Fn fn) {
  try {
    return fn(json::from_cbor(bytes));
  } catch (const json::exception& error) {
    throw damaged_error("what ranks of an island tell each other is damaged: {}", error.what());
  }
}

}  // namespace

std::string encode(const RankOrder& order) {
  json contacts = json::array(), sources = json::array(), hashes = json::array();
  for (const auto& [island, contact] : order.contacts) {
    contacts.push_back({island, contact.name, contact.peer_token});
  }
  for (const Source& source : order.sources) sources.push_back({source.island, source.address});
  for (const StateHash& hash : order.hashes) hashes.push_back(to_json(hash));
  json all = {{"what", static_cast<int>(order.what)},
              {"step", order.outer_step},
              {"fragment", order.fragment},
              {"hash", to_json(order.hash)},
              {"mine", order.was_mine},
              {"codec", order.codec},
              {"self", order.self},
              {"contacts", contacts},
              {"sources", sources},
              {"hashes", hashes},
              {"connection", order.connection}};
  if (order.what == RankOrder::What::kReduce) {
    all["reduce"] = bytes_json(encode(MessageToIsland{order.stamp, order.reduce}));
  }
  return to_bytes(all);
}

RankOrder decode_order(const std::string& bytes) {
  return read(bytes, [](const json& all) {
    RankOrder order;
    order.what = static_cast<RankOrder::What>(all.at("what").get<int>());
    order.outer_step = all.at("step").get<std::int64_t>();
    order.fragment = all.at("fragment").get<int>();
    order.hash = hash_from(all.at("hash"));
    order.was_mine = all.at("mine").get<bool>();
    order.codec = all.at("codec").get<std::string>();
    order.self = all.at("self").get<IslandId>();
    order.connection = all.at("connection").get<std::uint64_t>();
    for (const json& one : all.at("contacts")) {
      order.contacts[one.at(0).get<IslandId>()] = {one.at(1).get<std::string>(),
                                                   one.at(2).get<std::string>()};
    }
    for (const json& one : all.at("sources")) {
      order.sources.push_back({one.at(0).get<IslandId>(), one.at(1).get<std::string>()});
    }
    for (const json& one : all.at("hashes")) order.hashes.push_back(hash_from(one));
    if (order.what == RankOrder::What::kReduce) {
      MessageToIsland message = decode_to_island(text_from(all.at("reduce")));
      order.stamp = message.stamp;
      order.reduce = std::get<Reduce>(std::move(message.body));
    }
    return order;
  });
}

std::string encode(const RankAnswer& answer) {
  json links = json::array();
  for (const LinkMeasurement& link : answer.exchange.links) {
    links.push_back({link.island, link.bytes_per_second, link.round_trip_seconds});
  }
  return to_bytes({{"error", bytes_json(answer.error)},
                   {"done", answer.exchange.is_done},
                   {"gone", answer.exchange.is_gone},
                   {"unreachable", answer.exchange.unreachable},
                   {"why", bytes_json(answer.exchange.why)},
                   {"links", links},
                   {"hash", to_json(answer.hash)},
                   {"squares", answer.squares},
                   {"sent", answer.sent_bytes},
                   {"received", answer.received_bytes}});
}

RankAnswer decode_answer(const std::string& bytes) {
  return read(bytes, [](const json& all) {
    RankAnswer answer;
    answer.error = text_from(all.at("error"));
    answer.exchange.is_done = all.at("done").get<bool>();
    answer.exchange.is_gone = all.at("gone").get<bool>();
    answer.exchange.unreachable = all.at("unreachable").get<std::vector<IslandId>>();
    answer.exchange.why = text_from(all.at("why"));
    for (const json& one : all.at("links")) {
      answer.exchange.links.push_back(
          {one.at(0).get<IslandId>(), one.at(1).get<double>(), one.at(2).get<double>()});
    }
    answer.hash = hash_from(all.at("hash"));
    answer.squares = all.at("squares").get<std::vector<double>>();
    answer.sent_bytes = all.at("sent").get<std::uint64_t>();
    answer.received_bytes = all.at("received").get<std::uint64_t>();
    return answer;
  });
}

}  // namespace atl::island
