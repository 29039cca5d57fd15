# SPDX-License-Identifier: Apache-2.0
"""The long system prompt that both questions share, about 1,030 tokens for SmolLM2."""

FACTS = """\
Afghanistan Kabul|Albania Tirana|Algeria Algiers|Angola Luanda|Argentina Buenos Aires
Armenia Yerevan|Australia Canberra|Austria Vienna|Bangladesh Dhaka|Belgium Brussels|Bolivia Sucre
Botswana Gaborone|Brazil Brasilia|Bulgaria Sofia|Cambodia Phnom Penh|Cameroon Yaounde|Canada Ottawa
Chile Santiago|China Beijing|Colombia Bogota|Croatia Zagreb|Cuba Havana|Denmark Copenhagen
Ecuador Quito|Egypt Cairo|Estonia Tallinn|Ethiopia Addis Ababa|Finland Helsinki|France Paris
Georgia Tbilisi|Germany Berlin|Ghana Accra|Greece Athens|Guatemala Guatemala City|Hungary Budapest
Iceland Reykjavik|India New Delhi|Indonesia Jakarta|Iran Tehran|Iraq Baghdad|Ireland Dublin
Italy Rome|Jamaica Kingston|Japan Tokyo|Jordan Amman|Kenya Nairobi|Latvia Riga|Lebanon Beirut
Libya Tripoli|Malaysia Kuala Lumpur|Mali Bamako|Mexico Mexico City|Mongolia Ulaanbaatar
Morocco Rabat|Nepal Kathmandu|Norway Oslo|Oman Muscat|Pakistan Islamabad|Panama Panama City
Peru Lima|Poland Warsaw|Portugal Lisbon|Romania Bucharest|Rwanda Kigali|Senegal Dakar
Serbia Belgrade|Somalia Mogadishu|Spain Madrid|Sudan Khartoum|Sweden Stockholm|Syria Damascus
Tanzania Dodoma|Thailand Bangkok|Tunisia Tunis|Turkey Ankara|Uganda Kampala|Ukraine Kyiv
Yemen Sanaa"""

SYSTEM = "\n".join(
    ["You are a helpful AI assistant named Otto. You know these facts:"]
    + ["The capital of the country {} is the city {}.".format(*fact.split(" ", 1))
       for fact in FACTS.replace("|", "\n").splitlines()])

# The answer to the second one stands in the first page only: it comes out of the cache.
FIRST_QUESTION = "What is the capital of France?"
SECOND_QUESTION = "What is your name?"
